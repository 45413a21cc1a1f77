"""Data directories to damage, and the answers and log lines of a broker that starts on one."""

from pathlib import Path

import pytest

import txn
from support.clients import create_topic, plain_producer, send
from support.wire_client import RawConnection

KAFKA_STORAGE_ERROR = 56
VALUES = [b"%d" % number for number in range(21)]
"""The records of each topic, one to a batch."""


def write(servers: str) -> None:
    """Write `VALUES` to the topics `bad` and `good`."""
    for topic in ("bad", "good"):
        create_topic(servers, topic)
        producer = plain_producer(servers)
        for value in VALUES:
            send(producer, topic, [value])


def closed_directory(data: Path) -> Path:
    """Make a directory with both topics, whose broker was stopped in order."""
    with txn.Broker(data) as broker:
        write(broker.bootstrap_servers)
    return data


def segment_of(data: Path, topic: str = "bad") -> Path:
    return data / f"{topic}-0" / f"{0:020}.log"


def flip_bit(path: Path, position: int, bit: int = 1) -> bytes:
    """Flip one bit of a file, and return its bytes from before. A negative position counts back."""
    intact = path.read_bytes()
    damaged = bytearray(intact)
    damaged[position] ^= bit
    path.write_bytes(damaged)
    return intact


def fetch_code(servers: str, topic: str) -> int:
    """The error code that answers a fetch of partition 0, or 0."""
    with RawConnection(servers) as connection:
        return connection.fetch_code(topic)


def events(caplog: pytest.LogCaptureFixture, event: str) -> list[str]:
    """The log lines of one event."""
    return [line for line in caplog.messages if line.startswith(event)]
