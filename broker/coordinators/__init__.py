"""What the coordinators of groups and of transactions share: each owns the keys of the topic partitions that it leads.

A coordinator keeps its state as records in an internal topic. A key, which is a group id or a transactional id, belongs
to one partition, and the leader of that partition coordinates it. When the leadership moves, the next leader replays
the records.

- `coordinator_topic`: the topic, the partition of a key, and waiting until the topic is created.
- `led_partitions`: which partitions this broker leads, with a shard for each; `coordinator_loader` replays them.
- `coordinator_partition_writer`: writes a batch of records. `record_fields`: the encodings of their fields.
- `effects`: writes and answers, as shards and groups ask for them.
"""
