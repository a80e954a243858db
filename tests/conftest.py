"""For all tests: no test fails for being slow on a busy machine; speed is what the benchmarks measure."""

import os

from hypothesis import settings

settings.register_profile("raftwerk", deadline=None)
settings.load_profile("raftwerk")

# Most JVMs of the tests (Spark's, Kafka's tools) live for seconds and spend them in the optimizing compiler and in the
# threads of a collector for large heaps: without those, the tests of Spark take two thirds of the time.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
