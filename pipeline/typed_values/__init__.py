"""Values that were serialized by the schemas of a registry, as columns of Spark."""

REGISTRY = "registry"
"""The format of such values, in options of jobs."""
