"""A broker in the process leaves Python's default for warnings of the client as it is."""

import subprocess
import sys

PROGRAM = """
import txn

with txn.Broker() as broker:
    servers = broker.bootstrap_servers
    with txn.Producer(bootstrap_servers=servers) as producer:
        producer.produce("orders", "7 apples")
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="shop", auto_offset_reset="earliest"
    )
    consumer.subscribe(["orders"])
    with consumer, txn.Producer(bootstrap_servers=servers, transactional_id="shop-1") as producer:
        with producer.transaction() as t:
            [message] = consumer.consume(1, timeout=60)
            t.produce("invoices", message.value())
    from txn.logs import log
    log.warning("broker.said_something")
"""


def test_warnings_of_the_client_are_shown_beside_a_silent_broker() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=True
    )
    assert "committed a transaction without the offsets of the consumer" in done.stderr
    assert "broker.said_something" not in done.stderr
