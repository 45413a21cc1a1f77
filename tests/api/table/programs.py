"""A program with a table, in pieces: the total of each name."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import txn
from support.clients import WAIT_S, plain_producer
from txn.client.engine import EngineName
from txn.table import JSON, TEXT


def table_on(servers: str, topic: str, **settings: Any) -> txn.Table:
    return txn.Table(topic, bootstrap_servers=servers, key=TEXT, value=JSON, **settings)


def produce(servers: str, topic: str, *records: tuple[str, int]) -> None:
    """Produce amounts of names, which go to the partitions of Java's producer."""
    producer = plain_producer(servers, partitioner="murmur2_random")
    for name, amount in records:
        producer.produce(topic, str(amount), name)
    assert producer.flush(WAIT_S) == 0


@dataclass
class Program:
    producer: txn.Producer
    consumer: txn.Consumer
    table: txn.Table

    def run_block(self, count: int, fault: Exception | None = None) -> dict[str, int]:
        """Add so many records to the totals in one transaction; return the table in the block."""
        with self.producer.transaction(self.consumer) as t:
            rows = self.table.within(t)
            for record in self.take(count):
                name = record.key().decode()
                rows[name] = rows.get(name, 0) + int(record.value())
            seen = dict(rows)
            if fault is not None:
                raise fault
        return seen

    def take(self, count: int) -> list[Any]:
        records: list[Any] = []
        ends_s = time.monotonic() + WAIT_S
        while len(records) < count:
            assert time.monotonic() < ends_s, f"{len(records)} of {count} records came"
            records += self.consumer.consume(count - len(records), 0.2)
        return records

    def await_partitions(self, count: int) -> None:
        """Poll until the table has so many; records that come meanwhile come again."""
        ends_s = time.monotonic() + WAIT_S
        while len(self.table.partitions) != count:
            assert time.monotonic() < ends_s, f"it has {self.table.partitions}"
            self.consumer.poll(0.1)
        txn.rewind(self.consumer)


def share(*programs: Program) -> None:
    """Poll members in turn until each has one partition; records that come are passed over."""
    ends_s = time.monotonic() + WAIT_S
    while any(len(each.table.partitions) != 1 for each in programs):
        assert time.monotonic() < ends_s, "the group does not settle"
        for each in programs:
            each.consumer.poll(0.1)


@contextmanager
def program(
    servers: str,
    orders: str,
    totals: str,
    *,
    name: str,
    engine: EngineName = "confluent-kafka",
    **settings: Any,
) -> Iterator[Program]:
    """A program that is subscribed; its transactional id is `name`."""
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id=name, engine=engine) as producer,
        txn.Consumer(
            bootstrap_servers=servers,
            group_id=f"group-of-{orders}",
            auto_offset_reset="earliest",
        ) as consumer,
        table_on(servers, totals, **settings) as table,
    ):
        table.subscribe(consumer, [orders])
        yield Program(producer, consumer, table)


def read(servers: str, topic: str) -> dict[str, int]:
    """Read the table, as another program does."""
    with table_on(servers, topic).reader() as rows:
        rows.wait_until_current()
        return dict(rows)
