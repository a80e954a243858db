"""Clusters for tests of applications: simulated, and of real processes. `raftwerk.testing` has the public names."""
