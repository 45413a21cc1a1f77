"""Python's frameworks of streams: quixstreams with exactly-once, and FastStream."""

import shutil
import subprocess
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from clients.fetched import python_client
from clients.marks import long
from clients.programs import SECONDS_MAX, Program
from clients.test_clients import committed
from support.clients import create_topic, plain_producer, read_all

pytestmark = pytest.mark.timeout(1000 + SECONDS_MAX)  # the first run fetches the clients

KEYS = 6


def send_keys(servers: str, topic: str, count: int) -> None:
    producer = plain_producer(servers)
    for n in range(count):
        producer.produce(topic, key=f"k{n % KEYS}", value=f"v{n}")
    assert producer.flush(SECONDS_MAX) == 0


def counts(count: int) -> Counter[bytes]:
    """Every number of every key, once."""
    return Counter(f"k{n % KEYS}={n // KEYS + 1}".encode() for n in range(count))


def has_records(servers: str, topic: str, count: int) -> bool:
    """Whether a topic has so many committed records."""
    return len(read_all(servers, topic)) >= count


def test_P1_P3_quixstreams_goes_on_counting_from_its_changelog(
    servers: str, name: str, tmp_path: Path
) -> None:
    create_topic(servers, name, 3)
    command = [*python_client("quix.py"), servers, name, str(tmp_path / "state")]
    for turn in (1, 2):
        send_keys(servers, name, 60)
        done = subprocess.run(
            [*command, "60"], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
        )
        assert done.returncode == 0, done.stderr[-4000:]
        assert Counter(read_all(servers, f"{name}-out")) == counts(60 * turn)
        shutil.rmtree(tmp_path / "state")


@long
def test_P1_P3_a_killed_quixstreams_counts_each_record_once(
    servers: str, name: str, tmp_path: Path
) -> None:
    total, kills = 3000, 3
    create_topic(servers, name, 3)
    create_topic(servers, f"{name}-out")
    send_keys(servers, name, total)
    command = [*python_client("quix.py"), servers, name, str(tmp_path / "state"), "1000000"]
    for kill in range(kills + 1):
        wanted = total if kill == kills else kill * total // (kills + 1) + 1
        with Program(command, tmp_path / "log") as program:
            program.until(partial(has_records, servers, f"{name}-out", wanted))
    assert Counter(read_all(servers, f"{name}-out")) == counts(total)


def test_P1_faststream_copies_each_record_once_over_a_restart(
    servers: str, name: str, tmp_path: Path
) -> None:
    create_topic(servers, name, 3)
    create_topic(servers, f"{name}-out")
    command = [*python_client("fast_stream.py"), servers, name]
    for turn in (1, 2):
        send_keys(servers, name, 60)
        with Program(command, tmp_path / "log") as program:
            program.until(partial(has_records, servers, f"{name}-out", 60 * turn))
            assert program.stop() == 0
        copied = Counter(read_all(servers, f"{name}-out"))
        assert copied == Counter([f"V{n}".encode() for n in range(60)] * turn)
        assert sum(committed(servers, f"{name}-group").values()) == 60 * turn
