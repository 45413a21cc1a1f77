"""A lane of the timeline: the transactions of one id, from the records of its coordinator.

Pure: records of `__transaction_state` go in, spans come out. Compaction may have taken the older
records; a Complete record still names the time at which its transaction began.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from txn.cluster.facts import StateRecord
from txn.coordinator.transaction.states import COMPLETED, PREPARED, Txn, TxnState


@dataclass(frozen=True, slots=True)
class Span:
    """One transaction; `outcome` is `open`, `commit` or `abort`.

    Attributes:
        begin_ms: When it began.
        prepared_ms: When it was decided; None: not yet, or the record is gone.
        end_ms: When every partition had its marker; None: not yet.
        outcome: The decision, or that there is none.
    """

    begin_ms: int
    prepared_ms: int | None
    end_ms: int | None
    outcome: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The transactions of an id, oldest first, and the times at which a producer was fenced."""

    spans: Sequence[Span]
    fences: Sequence[int]


def lane_of(history: Sequence[StateRecord]) -> Lane:
    """Read a lane from the records of an id, oldest first.

    InitProducerId fences the producer before it: that is each Empty record behind another one.
    """
    spans: list[Span] = []
    fences: list[int] = []
    current: Span | None = None
    before: Txn | None = None
    for record in history:
        txn = record.txn
        if txn is None:
            current = before = None
            continue
        if txn.state is TxnState.EMPTY:
            if before is not None and before.producer != txn.producer:
                fences.append(txn.updated_ms)
        elif txn.state is TxnState.ONGOING:
            current = current or Span(_begin(txn), None, None, "open")
        elif txn.state in PREPARED:
            begun = current or Span(_begin(txn), None, None, "open")
            current = replace(begun, prepared_ms=txn.updated_ms, outcome=_outcome(txn))
        elif txn.state in COMPLETED:
            begun = current or Span(_begin(txn), None, None, "open")
            spans.append(replace(begun, end_ms=txn.updated_ms, outcome=_outcome(txn)))
            current = None
        before = txn
    return Lane([*spans, *([] if current is None else [current])], fences)


def _begin(txn: Txn) -> int:
    return txn.start_ms if txn.start_ms > 0 else txn.updated_ms


def _outcome(txn: Txn) -> str:
    is_commit = txn.state in (TxnState.PREPARE_COMMIT, TxnState.COMPLETE_COMMIT)
    return "commit" if is_commit else "abort"
