"""Clusters for tests: the pytest plugin, and the class that its fixtures return."""
