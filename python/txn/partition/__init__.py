"""The rules of one partition, pure: every batch passes its `ProducerStateManager`.

`admission` decides, and `producer_state_entry` remembers. `stable_offset` and `aborted_index`
determine the view of a read_committed reader, `snapshot` is the state as bytes.
"""

from txn.partition.active_producer import ActiveProducer
from txn.partition.admission import ADMIT, ASK_TO_JOIN, DUPLICATE, REFUSE, AbortedTxn, AdmitResult
from txn.partition.producer_state_manager import (
    PRODUCER_ID_EXPIRATION_MS,
    ProducerStateManager,
    ReplayedBatch,
)

__all__ = [
    "ADMIT",
    "ASK_TO_JOIN",
    "DUPLICATE",
    "PRODUCER_ID_EXPIRATION_MS",
    "REFUSE",
    "AbortedTxn",
    "ActiveProducer",
    "AdmitResult",
    "ProducerStateManager",
    "ReplayedBatch",
]
