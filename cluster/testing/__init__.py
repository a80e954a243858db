"""Clusters for tests: the pytest plugin and what its fixtures give."""
