"""Transactions: the coordinator of transactional ids, and what leaders of partitions ask it.

The coordinator of a transactional id is the broker that leads the id's partition of `__transaction_state`.
"""
