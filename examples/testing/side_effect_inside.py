"""Mistake 4: a side effect inside the transaction.

An abort takes the records back, and not the mail that was sent. The next attempt sends another.
"""

from pathlib import Path

import txn


def copy(servers: str, directory: str) -> None:
    """Copy `in` to `out` in capitals and send mails, until nothing comes any more."""
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="copies", auto_offset_reset="earliest"
    )
    consumer.subscribe(["in"])
    with txn.Producer(bootstrap_servers=servers, transactional_id="copies-1") as producer:
        messages = [None]
        while messages:
            with producer.transaction(consumer) as t:
                messages = consumer.consume(2, timeout=2)
                for message in messages:
                    t.produce("out", message.value().upper())
                    with Path(directory, "mails").open("a") as mails:  # the mistake
                        mails.write(f"dear reader of {message.value().decode()}\n")
