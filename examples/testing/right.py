"""A right program: output and offsets commit together, and an abort rewinds the consumer."""

import sys

import txn


def copy(servers: str) -> None:
    """Copy `in` to `out` in capitals, until nothing comes any more."""
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="copies", auto_offset_reset="earliest"
    )
    consumer.subscribe(["in"])
    with txn.Producer(bootstrap_servers=servers, transactional_id="copies-1") as producer:
        messages = [None]
        while messages:
            try:
                with producer.transaction(consumer) as t:
                    messages = consumer.consume(2, timeout=2)
                    for message in messages:
                        t.produce("out", message.value().upper())
            except txn.AbortableError as error:
                print("once more:", error)
    consumer.close()


if __name__ == "__main__":
    copy(sys.argv[1])
