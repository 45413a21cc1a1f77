"""A count by key of quixstreams, exactly once, with its state in a changelog topic.

    python quix.py HOST:PORT NAME DIRECTORY COUNT

It ends when it has seen COUNT records of the topic NAME since its start.
"""

import sys
from typing import Any

from quixstreams import Application, State


def main(servers: str, name: str, directory: str, count: str) -> None:
    """Count the records of each key into the topic NAME-out."""
    app = Application(
        broker_address=servers,
        consumer_group=f"{name}-group",
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=0.2,
        state_dir=directory,
        loglevel="ERROR",
    )
    counted = app.dataframe(app.topic(name, value_deserializer="bytes"))
    counted = counted.apply(count_up, stateful=True, metadata=True)
    counted.to_topic(app.topic(f"{name}-out", value_serializer="str"))
    app.run(count=int(count), timeout=60)


def count_up(_value: bytes, key: bytes, _timestamp: int, _headers: Any, state: State) -> str:
    """Return the key with the number of its records."""
    number = state.get("count", 0) + 1
    state.set("count", number)
    return f"{key.decode()}={number}"


if __name__ == "__main__":
    main(*sys.argv[1:])
