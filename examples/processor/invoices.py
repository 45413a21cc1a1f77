"""Orders become invoices, exactly once; an order that cannot be priced becomes a dead letter."""

import json
import sys

import txn
from txn.processor import Record

PRICES = {"apple": 2, "pear": 3}


def invoice(record: Record) -> str:
    """Return the invoice of an order."""
    order = json.loads(record.value)
    return json.dumps({"item": order["item"], "total": order["count"] * PRICES[order["item"]]})


def run(servers: str) -> None:
    """Process orders until SIGTERM."""
    txn.Processor(
        "orders",
        invoice,
        "invoices",
        "orders-dead",
        group_id="shop",
        transactional_id="shop",
        bootstrap_servers=servers,
        attempts=1,
        batch_size=3,
    ).run()


if __name__ == "__main__":
    run(sys.argv[1])
