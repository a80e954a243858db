"""Consumer groups: their members, the partitions that each member reads, and the committed offsets.

The coordinator of a group is the broker that leads the group's partition of `__consumer_offsets`. Everything that must
survive the coordinator is a record in that partition, in Kafka's format to the byte; the next leader replays it. The
groups are plain objects: an event and a time in, effects out. `group_coordinator` carries the effects out. A response
is sent after the write that it depends on, and an offset is seen when every in-sync replica has it.

- `group_coordinator`: which partitions are coordinated here, timers, writes, expiry of offsets.
- `group_coordinator_shard`: the groups and offsets of one partition; `coordinator_loader` replays them.
- `classic/`: groups whose clients assign. `consumer/`: groups that the coordinator assigns (KIP-848).
- `member_session_expiry`: when a member expires. `records/`: the records of `__consumer_offsets`.
"""
