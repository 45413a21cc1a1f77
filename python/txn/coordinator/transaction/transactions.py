"""All transactional ids and where they stand: the fold of `__transaction_state`.

`apply` is the only way this changes, for a record just written and for one read at
recovery; hence what is here is what replay would give (P8). A record holds everything
about its id, so the newest one alone matters and a compacted log replays to the same.
"""

from collections.abc import Iterator

from txn.coordinator.transaction.states import Txn


class Transactions:
    """What is known of every transactional id."""

    __slots__ = ("_by_id",)

    def __init__(self) -> None:
        self._by_id: dict[str, Txn] = {}

    def get(self, transactional_id: str) -> Txn | None:
        """What is known of an id; None if nothing."""
        return self._by_id.get(transactional_id)

    def apply(self, transactional_id: str, txn: Txn | None) -> None:
        """Fold in a stored record; None is a tombstone."""
        if txn is None:
            self._by_id.pop(transactional_id, None)
        else:
            self._by_id[transactional_id] = txn

    def items(self) -> list[tuple[str, Txn]]:
        """All ids as they are now; later changes do not show."""
        return list(self._by_id.items())

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._by_id))

    def __len__(self) -> int:
        return len(self._by_id)
