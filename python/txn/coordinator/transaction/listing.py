"""Which transactional ids ListTransactions names.

Where this differs from Kafka: the pattern is Python's `re`, Kafka's is RE2/J. They agree on
everything that both accept; Python also has back-references and look-around, and a pattern
made for it can take very long.

Sources: KIP-664, KIP-994 (duration), KIP-1152 (pattern).
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from txn.coordinator.transaction.states import Txn, TxnState

STATES_BY_LABEL: Final = {state.label: state for state in TxnState}
"""Every name a client may ask for; nothing is ever found in some of them."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What to list; an empty part lets everything pass.

    Attributes:
        states: In any of these.
        producer_ids: With any of these in use.
        longer_than_ms: Begun longer ago than this; negative: any.
        pattern: Matching the whole transactional id.
    """

    states: Collection[TxnState] = ()
    producer_ids: Collection[int] = ()
    longer_than_ms: int = -1
    pattern: re.Pattern[str] | None = None

    def passes(self, transactional_id: str, txn: Txn, now_ms: int) -> bool:
        """Say whether an id is to be listed."""
        return (
            (not self.states or txn.state in self.states)
            and (not self.producer_ids or txn.producer_id in self.producer_ids)
            and (self.longer_than_ms < 0 or now_ms - txn.start_ms > self.longer_than_ms)
            and (self.pattern is None or self.pattern.fullmatch(transactional_id) is not None)
        )
