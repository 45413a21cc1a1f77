"""The outbox pattern: a row and its event are one transaction of the database; a relay publishes
each event once. It keeps its place as an offset, in the transaction that has the events.
"""

import sqlite3
from pathlib import Path

from confluent_kafka import TopicPartition

import txn
from txn.testing import crash_everywhere


def place_orders(database: sqlite3.Connection) -> None:
    """The program's own work: four orders, each with its event, unless they are there."""
    with database:
        for number in range(1, 5):
            for table in ("orders", "outbox"):
                database.execute(f"CREATE TABLE IF NOT EXISTS {table} (id PRIMARY KEY, text)")
                row = (number, f"order {number}")
                database.execute(f"INSERT OR IGNORE INTO {table} VALUES (?, ?)", row)


def relay(servers: str, directory: str) -> None:
    """Publish the events behind the place of the relay before, which this one fences."""
    database = sqlite3.connect(Path(directory, "shop.db"))
    place_orders(database)
    memory = txn.Consumer(bootstrap_servers=servers, group_id="relay")
    with txn.Producer(bootstrap_servers=servers, transactional_id="relay") as producer:
        [place] = memory.committed([TopicPartition("events", 0)], timeout=30)
        last = max(place.offset, 0)
        for number, text in database.execute("SELECT * FROM outbox WHERE id > ?", [last]):
            with producer.transaction() as t:
                t.produce("events", text)
                t.send_offsets([TopicPartition("events", 0, number)], memory)


def test_each_event_is_published_once_wherever_the_relay_is_stopped() -> None:
    crash_everywhere(relay, input=lambda broker: None, output="events", quick=8)
