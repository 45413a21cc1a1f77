"""Other people's clients, each through one story, with its results.

A client makes three topics and sends 30 records with keys, headers and compression. One member of a
group reads and commits them. A second member joins, and both read 30 more. A transactional
producer commits, aborts, and copies a topic with its offsets. The client describes the group and
deletes a topic. confluent-kafka reads the outcome too.
"""

import json
import subprocess
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from clients.fetched import Command, go_client, node_client, python_client, rust_client
from clients.marks import long
from support.clients import WAIT_S, read_all

SECONDS_MAX = 240.0

pytestmark = pytest.mark.timeout(1000 + SECONDS_MAX)  # the first run fetches the clients

WHOLE_STORY = {
    "kafka-python": partial(python_client, "kafka_python.py"),
    "aiokafka": partial(python_client, "aio_kafka.py"),
    "kafkajs": partial(node_client, "story.js"),
}
BUILT: Final = {
    "franz-go": partial(go_client, "franz"),
    "sarama": partial(go_client, "sarama"),
}
"""Go compiles them for a minute; `interop/test_go_client.py` plays another client in each run."""
CLIENTS: Final = (
    *(pytest.param(client, id=name) for name, client in WHOLE_STORY.items()),
    *(pytest.param(client, id=name, marks=long) for name, client in BUILT.items()),
)


def played(command: Command, servers: str, name: str) -> dict[str, Any]:
    """Run a program; return the results that it prints as its last line."""
    done = subprocess.run(
        [*command, servers, name],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


def values(numbers: range, letter: str = "v") -> list[str]:
    return sorted(f"{letter}{n}" for n in numbers)


RECORDS = sorted(f"{n % 3}:{n // 3}:k{n}=v{n};n={n}" for n in range(30))
OFFSETS = sorted([n % 3, n // 3] for n in range(30))
COPIED = sorted([*values(range(60), "V"), "t0", "t1"])


def stored(servers: str, topic: str) -> list[str]:
    """The committed values of a topic, in order of their text."""
    return sorted((value or b"").decode() for value in read_all(servers, topic))


def committed(servers: str, group: str) -> dict[int, int]:
    """Committed offset by partition."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    return {each.partition: each.offset for each in asked[group].result(WAIT_S).topic_partitions}


@pytest.mark.parametrize("client", CLIENTS)
def test_P1_P4_a_client_sends_reads_and_copies_each_record_once(
    client: Callable[[], Command], servers: str, name: str
) -> None:
    told = played(client(), servers, name)
    assert told == {
        "partitions": 3,
        "offsets": OFFSETS,
        "first": RECORDS,
        "committed": [10, 10, 10],
        "owned": [1, 2],
        "second": values(range(30, 60)),
        "transformed": COPIED,
        "all": 63,
        "group": "Empty",
        "gone": True,
    }
    assert stored(servers, f"{name}-out") == COPIED
    assert committed(servers, f"{name}-copy") == {0: 20, 1: 20, 2: 20}


@long  # as above
def test_P1_kafka_go_reads_each_record_of_its_group_once(servers: str, name: str) -> None:
    told = played(go_client("segmentio"), servers, name)
    assert told == {
        "partitions": 3,
        "first": RECORDS,
        "committed": [10, 10, 10],
        "owned": [1, 2],
        "second": values(range(30, 60)),
        "group": "Empty",
        "gone": True,
    }
    assert stored(servers, name) == values(range(60))


@long  # cargo builds it for a minute
def test_P1_rskafka_reads_and_deletes_records(servers: str, name: str) -> None:
    told = played(rust_client("rskafka"), servers, name)
    assert told == {"offsets": OFFSETS, "first": RECORDS, "ends": [[4, 10]] * 3, "gone": True}
    assert stored(servers, name) == values(range(12, 30))
