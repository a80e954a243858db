"""What Apache Kafka answers to users with different rights.

`PYTHONPATH=tests python -m support.security.kafka_authorization` starts Kafka's broker from its jars and writes the
transcript that tests compare our answers with; `--check` says how it differs instead.
"""

from __future__ import annotations

import asyncio
import difflib
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from support.log.kafka_written import kafka_broker, kafka_libs
from support.security.admin_authorization_calls import ADMIN_CALLS
from support.security.authorization_answers import SETTINGS, record
from support.security.authorization_calls import BROKER_CALLS, Call
from support.security.authorization_users import USERS

TRANSCRIPT = Path(__file__).parents[2] / "security" / "authorizer" / "kafka-4.2.txt"
CALLS = (*BROKER_CALLS, *ADMIN_CALLS)
"""The calls of the transcript."""
START_TIMEOUT_S = 60.0


def ask_kafka(directory: Path, calls: Sequence[Call]) -> str:
    """Kafka's answers. Skips the test where there are no jars."""
    with kafka_broker(kafka_libs(), directory, SETTINGS) as broker:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not _listens(broker.port):
            assert time.monotonic() < deadline, (directory / "broker.log").read_text()
            time.sleep(0.1)
        return asyncio.run(record(broker.port, calls))


def kafka_answers() -> dict[str, dict[str, str]]:
    """By the name of the call, what Kafka answered each user."""
    answers: dict[str, dict[str, str]] = {}
    for section in TRANSCRIPT.read_text().split("\n\n"):
        heading, *lines = section.strip().splitlines()
        others = ""
        users: dict[str, str] = {}
        for line in lines:
            names, _, answer = line.strip().partition(":")
            if names == "others":
                others = answer
            else:
                users |= dict.fromkeys(names.split(", "), answer)
        answers[heading.partition(": ")[0]] = dict.fromkeys(USERS, others) | users
    return answers


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def main() -> None:
    """Write the transcript, or compare."""
    with tempfile.TemporaryDirectory() as directory:
        answers = ask_kafka(Path(directory), CALLS)
    if "--check" in sys.argv[1:]:
        lines = difflib.unified_diff(TRANSCRIPT.read_text().splitlines(), answers.splitlines(), "stored", "now", "", "")
        print("\n".join(lines))
    else:
        TRANSCRIPT.write_text(answers)


if __name__ == "__main__":
    main()
