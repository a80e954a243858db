"""The `raftwerk` command. The folders are named after what a user does: run a local cluster, run one node, administer a
cluster, write and read records, test with faults.
"""
