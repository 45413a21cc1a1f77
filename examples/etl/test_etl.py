"""Extract, transform, load: lines become orders, others go to a topic for rejects, each once."""

import json
from typing import Any

import txn
from txn.testing import crash_everywhere

LINES = ["ann,7", "ben,3", "nonsense", "cat,1", "dan,x", "eve,2"]


def etl(servers: str) -> None:
    """Read `raw` until nothing comes any more; write `orders` and `rejects`."""
    group = {"group_id": "etl", "auto_offset_reset": "earliest"}
    with txn.Producer(bootstrap_servers=servers, transactional_id="etl-1") as producer:
        consumer = txn.Consumer(bootstrap_servers=servers, **group)
        consumer.subscribe(["raw"])
        messages: list[Any] = [None]
        while messages:
            try:
                with producer.transaction(consumer) as t:  # both topics and the offsets, or none
                    messages = consumer.consume(2, timeout=2)
                    for message in messages:
                        try:
                            name, count = message.value().decode().split(",")
                            order = {"name": name, "count": int(count)}
                            t.produce("orders", json.dumps(order), key=name)
                        except ValueError:
                            t.produce("rejects", message.value())
            except txn.AbortableError as error:
                print("once more:", error)
        consumer.close()


def test_each_line_arrives_once_wherever_it_is_stopped() -> None:
    crash_everywhere(etl, input={"raw": LINES}, output=["orders", "rejects"], quick=8)
