"""Transactional applications on confluent-kafka, as a load: the speed for a user of the client.

    python -m benches.applications small --bootstrap HOST:PORT --topic T --producers 32 --seconds 5
    python -m benches.applications loop  --bootstrap HOST:PORT --topic T --output O --producers 32

Each producer is a thread with a transactional id of its own. `small` sends ten records to
three partitions and commits. `loop` consumes ten records of its own partition of the topic,
produces them to `--output` and commits them with its offsets. Its topic has to be filled first,
which `fill` does. `mock` is a broker of librdkafka's own, to see the client alone. A run prints one
line of JSON: transactions, seconds, times of a commit in µs.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from benches.threads import WAIT_S, Stopwatch, in_threads
from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS = 10
SMALL_PARTITIONS = 3
VALUE = b"v" * 100
LOOP_RECORDS = 20_000
"""Records in each partition that a loop reads; it begins anew at their end."""


def _producer(arguments: argparse.Namespace, number: int) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "transactional.id": f"{arguments.topic}-{number}",
        }
    )
    producer.init_transactions(WAIT_S)
    return producer


def small(arguments: argparse.Namespace, number: int, watch: Stopwatch) -> None:
    """Ten records to three partitions, commit."""
    producer = _producer(arguments, number)
    watch.wait_for_all()
    while watch.is_running:
        producer.begin_transaction()
        for record in range(RECORDS):
            producer.produce(arguments.topic, VALUE, partition=record % SMALL_PARTITIONS)
        with watch.commit():
            producer.commit_transaction(WAIT_S)


def loop(arguments: argparse.Namespace, number: int, watch: Stopwatch) -> None:
    """Ten records in, ten out, offsets with them."""
    producer = _producer(arguments, number)
    consumer = Consumer(
        {
            "bootstrap.servers": arguments.bootstrap,
            "group.id": f"{arguments.topic}-{number}",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    start = TopicPartition(arguments.topic, number, 0)
    consumer.assign([start])
    taken = consumer.consume(RECORDS, timeout=WAIT_S)
    watch.wait_for_all()
    while watch.is_running:
        producer.begin_transaction()
        for message in taken:
            producer.produce(arguments.output, message.value(), partition=number)
        positions = consumer.position([TopicPartition(arguments.topic, number)])
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        with watch.commit():
            producer.commit_transaction(WAIT_S)
        if positions[0].offset >= arguments.filled - RECORDS:
            consumer.seek(start)
        taken = consumer.consume(RECORDS, timeout=WAIT_S)
    consumer.close()


def mock() -> None:
    """Be librdkafka's mock cluster until standard input ends; print where it listens."""
    producer = Producer({"test.mock.num.brokers": 1, "log_level": 2})
    broker = next(iter(producer.list_topics(timeout=WAIT_S).brokers.values()))
    print(f"{broker.host}:{broker.port}", flush=True)
    sys.stdin.read()


def fill(arguments: argparse.Namespace) -> None:
    """Fill the partitions that loops read."""
    producer = Producer({"bootstrap.servers": arguments.bootstrap, "linger.ms": 5})
    for partition in range(arguments.producers):
        for _ in range(arguments.filled):
            producer.produce(arguments.topic, VALUE, partition=partition)
        if producer.flush(WAIT_S):
            raise SystemExit(f"{arguments.topic} cannot be filled")


APPLICATIONS: dict[str, Callable[[argparse.Namespace, int, Stopwatch], None]] = {
    "small": small,
    "loop": loop,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("application", choices=[*APPLICATIONS, "fill", "mock"])
    parser.add_argument("--bootstrap")
    parser.add_argument("--topic")
    parser.add_argument("--output", help="the topic that a loop writes to")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--filled", type=int, default=LOOP_RECORDS, help="records of a partition")
    arguments = parser.parse_args()
    if arguments.application == "mock":
        mock()
        return
    if not arguments.bootstrap or not arguments.topic:
        parser.error(f"{arguments.application} needs --bootstrap and --topic")
    if arguments.application == "fill":
        fill(arguments)
        print("{}")
        return
    watch = in_threads(
        lambda number, watch: APPLICATIONS[arguments.application](arguments, number, watch),
        arguments.producers,
        arguments.seconds,
    )
    measured = {
        "transactions": len(watch.commits_us),
        "seconds": watch.seconds,
        "commit_p50_us": statistics.median(watch.commits_us),
    }
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
