"""An application of FastStream, as its users write them: a handler, a topic in and a topic out."""

from __future__ import annotations

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker


def application(bootstrap: str) -> FastStream:
    """Translates what is in `words` to capitals, and publishes it to `loud`."""
    broker = KafkaBroker(bootstrap.split(","), enable_idempotence=True)

    @broker.subscriber("words", group_id="loud", auto_offset_reset="earliest", ack_policy=AckPolicy.NACK_ON_ERROR)
    @broker.publisher("loud")
    async def shout(word: str) -> str:
        return word.upper()

    return FastStream(broker)


async def run_application(bootstrap: str) -> None:
    """Run it until cancelled."""
    await application(bootstrap).run()
