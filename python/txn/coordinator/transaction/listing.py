"""Which transactional ids ListTransactions names.

Sources: KIP-664, KIP-994 (duration), KIP-1152 (pattern).
"""

from dataclasses import dataclass
from typing import Final

from txn.coordinator.patterns import Pattern
from txn.coordinator.transaction.states import Txn, TxnState

STATES_BY_LABEL: Final = {state.label: state for state in TxnState}
"""Every name a client may ask for; nothing is ever found in some of them."""

PATTERN_BYTES_MAX: Final = 8 << 20
"""Memory that one compiled pattern may take; RE2's own default."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What to list; an empty part lets everything pass.

    A client may ask for 200,000 producer ids: they are looked up for each transactional id.

    Attributes:
        states: In any of these.
        producer_ids: With any of these in use.
        longer_than_ms: Begun longer ago than this; negative: any.
        pattern: Matching the whole transactional id.
    """

    states: frozenset[TxnState] = frozenset()
    producer_ids: frozenset[int] = frozenset()
    longer_than_ms: int = -1
    pattern: Pattern | None = None

    def passes(self, transactional_id: str, txn: Txn, now_ms: int) -> bool:
        """Return True if an id is to be listed."""
        return (
            (not self.states or txn.state in self.states)
            and (not self.producer_ids or txn.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or now_ms - txn.start_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.fullmatch(transactional_id) is not None)
        )
