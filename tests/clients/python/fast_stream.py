"""A FastStream application that copies a topic in capitals, until it is stopped by SIGTERM.

python fast_stream.py HOST:PORT NAME
"""

import asyncio
import sys

from faststream import AckPolicy, FastStream
from faststream.confluent import KafkaBroker


async def main(servers: str, name: str) -> None:
    """Copy the topic NAME to NAME-out."""
    broker = KafkaBroker(servers, logger=None)

    async def copy(value: str) -> str:
        return value.upper()

    subscriber = broker.subscriber(
        name,
        group_id=f"{name}-group",
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.ACK,
    )
    subscriber(broker.publisher(f"{name}-out")(copy))
    await FastStream(broker, logger=None).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
