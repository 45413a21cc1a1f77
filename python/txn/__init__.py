"""txn: an exactly-once transactional message log.

- `Broker`: a Kafka broker inside this process.
- `Producer`, `Consumer`: transactions in Python, against txn or any Kafka cluster.
- `txn.aio`: the same for asyncio.
- `Processor`: the loop that consumes, transforms and produces, with dead letters.
- `txn.sql`: one transaction over topics and a database.
- `Table`: a compacted topic as a mapping, written in the same transactions.
- `txn.admin`: topics, groups, settings and transactions of any cluster, as functions.
- `txn.spark`: an exactly-once source and sink for PySpark (the extra `spark`).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from txn.errors import (
    AbortableError,
    Action,
    AddressError,
    BrokerFailedError,
    ConfigError,
    CorruptLogError,
    DirectoryError,
    FencedError,
    ForkedError,
    InDoubtError,
    RejectedError,
    RetriableError,
    StorageError,
    TxnError,
    UnreachableError,
)

if TYPE_CHECKING:
    from txn import admin as admin
    from txn import aio as aio
    from txn import sql as sql
    from txn.client import (
        Consumer,
        Delivery,
        PreparedTxnState,
        Producer,
        ProducerPool,
        RecordMetadata,
        rewind,
    )
    from txn.processor import Output, Processor
    from txn.server.lifecycle.broker import Broker
    from txn.table import Table

    __version__: str

__all__ = [
    "AbortableError",
    "Action",
    "AddressError",
    "Broker",
    "BrokerFailedError",
    "ConfigError",
    "Consumer",
    "CorruptLogError",
    "Delivery",
    "DirectoryError",
    "FencedError",
    "ForkedError",
    "InDoubtError",
    "Output",
    "PreparedTxnState",
    "Processor",
    "Producer",
    "ProducerPool",
    "RecordMetadata",
    "RejectedError",
    "RetriableError",
    "StorageError",
    "Table",
    "TxnError",
    "UnreachableError",
    "__version__",
    "rewind",
]

_LAZY_MODULES = ("admin", "aio", "sql")
"""Loaded when first used, by their names."""

_LAZY = {
    "Broker": "txn.server.lifecycle.broker",
    "Consumer": "txn.client",
    "Delivery": "txn.client",
    "Output": "txn.processor",
    "Processor": "txn.processor",
    "PreparedTxnState": "txn.client",
    "Producer": "txn.client",
    "ProducerPool": "txn.client",
    "RecordMetadata": "txn.client",
    "Table": "txn.table",
    "rewind": "txn.client",
}
"""Loaded when first used: a Spark worker needs no broker, a producer no server."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("txn")
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name in _LAZY_MODULES:
        return import_module(f"txn.{name}")
    raise AttributeError(f"module 'txn' has no attribute {name!r}")
