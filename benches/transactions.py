"""Small transactions and a consume-transform-produce loop, txn beside a real Apache Kafka.

    python benches/transactions.py [--rounds 5] [--transactions 300]

Both brokers run for the whole time, with the same client (confluent-kafka) taking turns
between them: A B A B. Printed are medians over the rounds and the ratio; the client's own
cost is in both columns. The peer's first round warms its JIT and is not counted.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from confluent_kafka import Consumer

from brokers import BrokerProcess
from clients import WAIT_S, create_topic, plain_producer, send, transactional_producer
from peers.kafka import KafkaNode

RECORDS_PER_TRANSACTION = 10


def small_transactions(servers: str, name: str, count: int) -> float:
    """Milliseconds per transaction of ten records, begin to commit."""
    producer = transactional_producer(servers, f"bench-{name}")
    topic = f"small-{name}"
    create_topic(servers, topic)
    started = time.perf_counter()
    for number in range(count):
        producer.begin_transaction()
        for record in range(RECORDS_PER_TRANSACTION):
            producer.produce(topic, value=b"%d-%d" % (number, record))
        producer.commit_transaction(WAIT_S)
    return (time.perf_counter() - started) / count * 1000


def consume_transform_produce(servers: str, name: str, count: int) -> float:
    """Milliseconds per turn of the loop: ten records in, ten out, offsets inside."""
    source, target = f"in-{name}", f"out-{name}"
    create_topic(servers, source)
    create_topic(servers, target)
    values = [b"%d" % number for number in range(count * RECORDS_PER_TRANSACTION)]
    send(plain_producer(servers), source, values)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": f"group-{name}",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = transactional_producer(servers, f"loop-{name}")
    taken = consumer.consume(RECORDS_PER_TRANSACTION, timeout=WAIT_S)
    started = time.perf_counter()
    turns = 0
    while taken and turns < count:
        producer.begin_transaction()
        for message in taken:
            producer.produce(target, value=message.value())
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), WAIT_S)
        producer.commit_transaction(WAIT_S)
        turns += 1
        taken = consumer.consume(RECORDS_PER_TRANSACTION, timeout=WAIT_S) if turns < count else []
    seconds = time.perf_counter() - started
    consumer.close()
    return seconds / turns * 1000


CASES: dict[str, Callable[[str, str, int], float]] = {
    "transaction of 10 records, ms": small_transactions,
    "consume-transform-produce turn, ms": consume_transform_produce,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--transactions", type=int, default=300)
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="txn-bench-") as folder:
        place = Path(folder)
        broker = BrokerProcess(place / "txn", durability="process")
        try:
            with KafkaNode(place / "kafka") as peer:
                results = _rounds(broker, peer.bootstrap_servers, arguments, console)
        finally:
            broker.stop()
    table = Table(title=f"median of {arguments.rounds}, {_machine()}", title_justify="left")
    for column in ("case", "txn", "Apache Kafka 4.2", "ratio"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for case, (ours, theirs) in results.items():
        mine, other = statistics.median(ours), statistics.median(theirs)
        table.add_row(case, f"{mine:.2f}", f"{other:.2f}", f"{other / mine:.1f} ×")
    console.print(table)


def _rounds(
    broker: BrokerProcess, peer: str, arguments: argparse.Namespace, console: Console
) -> dict[str, tuple[list[float], list[float]]]:
    results: dict[str, tuple[list[float], list[float]]] = {case: ([], []) for case in CASES}
    for number in range(arguments.rounds + 1):
        for case, measure in CASES.items():
            ours = measure(broker.bootstrap_servers, str(number), arguments.transactions)
            theirs = measure(peer, str(number), arguments.transactions)
            console.print(f"round {number} {case}: txn {ours:.2f}, Apache Kafka {theirs:.2f}")
            if number > 0:
                results[case][0].append(ours)
                results[case][1].append(theirs)
    return results


def _machine() -> str:
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"


if __name__ == "__main__":
    main()
