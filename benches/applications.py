"""Transactional applications on confluent-kafka, as a load: the speed for a user of the client.

    python -m benches.applications small --bootstrap HOST:PORT --topic T --producers 32 --seconds 5
    python -m benches.applications loop  --bootstrap HOST:PORT --topic T --producers 32 --seconds 5

Each producer is a thread with a transactional id of its own. `small` sends ten records to
three partitions and commits. `loop` consumes ten records of its own partition of the topic,
produces them to `T-out-0` and commits them with its offsets. Its topic has to be filled first,
which `fill` does. `mock` is a broker of librdkafka's own, to see the client alone. A run prints one
line of JSON: transactions, seconds, times of a commit in µs.
"""

import argparse
import json
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from confluent_kafka import Consumer, Producer, TopicPartition

RECORDS = 10
SMALL_PARTITIONS = 3
VALUE = b"v" * 100
WAIT_S = 60.0
LOOP_RECORDS = 20_000
"""Records in each partition that a loop reads; it begins anew at their end."""


class Stopwatch:
    """When to stop, and how long commits took."""

    def __init__(self, producers: int, seconds: float) -> None:
        self._ready = threading.Barrier(producers, action=self._start)
        self._seconds = seconds
        self._ends = 0.0
        self.began = 0.0
        self.commits_us: list[float] = []

    def _start(self) -> None:
        self.began = time.perf_counter()
        self._ends = self.began + self._seconds

    def wait_for_all(self) -> None:
        self._ready.wait(WAIT_S)

    @property
    def is_running(self) -> bool:
        return time.perf_counter() < self._ends

    def commit(self, producer: Producer) -> None:
        began = time.perf_counter()
        producer.commit_transaction(WAIT_S)
        self.commits_us.append((time.perf_counter() - began) * 1e6)


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
        watch.commit(producer)


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
            producer.produce(f"{arguments.topic}-out-0", message.value(), partition=number)
        positions = consumer.position([TopicPartition(arguments.topic, number)])
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        watch.commit(producer)
        if positions[0].offset >= LOOP_RECORDS - RECORDS:
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
        for _ in range(LOOP_RECORDS):
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
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
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
    print(json.dumps(_run(APPLICATIONS[arguments.application], arguments)))


def _run(
    application: Callable[[argparse.Namespace, int, Stopwatch], None],
    arguments: argparse.Namespace,
) -> dict[str, float]:
    watch = Stopwatch(arguments.producers, arguments.seconds)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            application(arguments, number, watch)
        except BaseException as failure:
            failures.append(failure)

    threads = [
        threading.Thread(target=run, args=(number,)) for number in range(arguments.producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - watch.began
    if failures:
        raise SystemExit(f"{len(failures)} producers failed; one of them: {failures[0]!r}")
    return {
        "transactions": len(watch.commits_us),
        "seconds": seconds,
        "commit_p50_us": statistics.median(watch.commits_us),
    }


if __name__ == "__main__":
    main()
