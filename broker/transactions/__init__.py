"""Transactions: the coordinator of transactional ids, and what leaders of partitions ask it.

The coordinator of a transactional id is the broker that leads the id's partition of `__transaction_state`. The state of
an id is a record in that partition, in Kafka's format to the byte; the next leader replays it. The end of a transaction
is decided when PrepareCommit or PrepareAbort is on all in-sync replicas. Then the client is answered, and every
partition of the transaction gets its marker; when all have theirs, the transaction is complete.

- `transaction_metadata`: the states and the transitions between them. `transaction_decisions`: what each request does.
- `transaction_coordinator_shard`: the ids of one partition; events in, effects out. `transaction_coordinator` carries
  the effects out. `transaction_records`: the records.
- `transaction_marker_sender`: sends markers, which wait in `marker_queues`, until each partition has its own.
- `partition_verifier`, `transactional_appends`: what a leader asks the coordinator before a batch opens a transaction.
"""
