"""For all tests: no test fails for being slow on a busy machine; speed is what the benchmarks measure."""

import gc
import os
import shutil
import signal
from collections.abc import Iterator

import pytest
from hypothesis import settings
from support import transcripts

from raftwerk.cluster.client.access.current_login import CURRENT_LOGIN

# The same examples in each run, so that a red run is red because of a change; `make properties` looks for new ones.
settings.register_profile("raftwerk", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile("raftwerk")

# Most JVMs of the tests (Spark's, Kafka's tools) live for seconds and spend them in the optimizing compiler and in the
# threads of a collector for large heaps: without those, the tests of Spark take two thirds of the time.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


# A shell ignores SIGINT in what it runs in the background, and so would all that the tests start and then interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="Write transcripts anew where the conversation goes otherwise, and show the difference.",
    )


def pytest_configure(config: pytest.Config) -> None:
    transcripts.rewrite = config.getoption("--rewrite-transcripts")


def pytest_collection_finish() -> None:
    """Collections during the tests need not look at the million objects that are here before them."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _own_login() -> Iterator[None]:
    """A command that runs in this process logs in as its options say; the next test does not."""
    token = CURRENT_LOGIN.set(None)
    yield
    CURRENT_LOGIN.reset(token)


@pytest.fixture(scope="session")
def java_command() -> list[str]:
    """`java` with Apache Kafka's tools on its class path."""
    libs = os.environ.get("KAFKA_LIBS") or os.path.expanduser("~/.cache/kafka-4.2.0")
    if shutil.which("java") is None or not os.path.isdir(libs):
        pytest.skip(f"no java, or no Kafka jars in {libs} (set KAFKA_LIBS): the Java clients are NOT tested")
    return ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{libs}/*"]
