"""A right program with state: the total of each name, in a table that transactions keep."""

import sys

import txn
from txn.table import JSON, TEXT


def add(servers: str, store: str = "memory") -> None:
    """Write to `out` the new total of a name for each amount in `in`, until nothing comes."""
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="totals", auto_offset_reset="earliest"
    )
    with (
        txn.Producer(bootstrap_servers=servers, transactional_id="totals-1") as producer,
        txn.Table("totals", bootstrap_servers=servers, store=store, key=TEXT, value=JSON) as totals,
    ):
        totals.subscribe(consumer, ["in"])
        messages = [None]
        while messages:
            try:
                with producer.transaction(consumer) as t:
                    rows = totals.within(t)
                    messages = consumer.consume(2, timeout=2)
                    for message in messages:
                        name = message.key().decode()
                        rows[name] = rows.get(name, 0) + int(message.value())
                        t.produce("out", f"{name} {rows[name]}")
            except txn.AbortableError as error:
                print("once more:", error)
    consumer.close()


def in_memory(servers: str) -> None:
    """Keep the rows in memory: a restart reads the topic."""
    add(servers)


def in_a_file(servers: str, directory: str) -> None:
    """Keep the rows in a file of SQLite: a restart reads the rest of the topic."""
    add(servers, f"{directory}/totals.db")


if __name__ == "__main__":
    add(*sys.argv[1:])
