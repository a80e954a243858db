"""For all tests: no test fails for being slow on a busy machine; speed is what the benchmarks measure."""

from hypothesis import settings

settings.register_profile("raftwerk", deadline=None)
settings.load_profile("raftwerk")
