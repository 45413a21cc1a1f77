"""The rules of one partition, pure: `Partition` is the gate every batch passes.

`admission` decides, `producer_state` remembers, `stable_offset` and `aborted_index` say what
a read_committed reader sees, `snapshot` is the state as bytes.
"""

from txn.partition.admission import ADMIT, ASK_TO_JOIN, DUPLICATE, REFUSE, AbortedTxn, Verdict
from txn.partition.partition import (
    PRODUCER_ID_EXPIRATION_MS,
    ActiveProducer,
    Partition,
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
    "Partition",
    "ReplayedBatch",
    "Verdict",
]
