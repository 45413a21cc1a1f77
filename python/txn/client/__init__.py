"""The client side: transactions in Python, for txn and any Kafka cluster.

`Producer` has `transaction` blocks, `Consumer` reads their input, and `rewind` rewinds a consumer
by hand. Nothing here is particular to txn's broker.
"""

from txn.client.block_consumer import rewind
from txn.client.consumer import Consumer
from txn.client.delivery import Delivery, RecordMetadata
from txn.client.pool import ProducerPool
from txn.client.producer import Producer
from txn.client.transaction import Transaction
from txn.client.two_phase import PreparedTxnState

__all__ = [
    "Consumer",
    "Delivery",
    "PreparedTxnState",
    "Producer",
    "ProducerPool",
    "RecordMetadata",
    "Transaction",
    "rewind",
]
