"""All transactional ids and where they stand: the fold of `__transaction_state`.

Only `replay` changes the store, for a record just appended and for one that a start reads. So
the store is always the fold of the log (P8). A record holds everything about its id,
so the newest one alone matters and a compacted log replays to the same.

Most ids are at rest most of the time, and there may be many. An id without a request for long is
kept *encoded*, as the bytes of its record: some 250 bytes with its name instead of 600. Reading it
decodes it. Recovery decodes open transactions alone.
"""

from collections.abc import Iterator

from txn.coordinator.transaction.records import (
    TxnRecord,
    at_rest_since_ms,
    decode_value,
    encode_value,
)
from txn.coordinator.transaction.states import AT_REST, Txn
from txn.coordinator.transaction.timeouts import is_expired
from txn.identifiers import TopicPartition


class TxnStore:
    """The state of every known transactional id."""

    __slots__ = ("_decoded", "_encoded", "_open")

    def __init__(self) -> None:
        self._decoded: dict[str, Txn] = {}
        self._encoded: dict[str, bytes] = {}
        """At rest, as `encode_value` gives it. An id is in one of the two."""
        self._open: dict[int, str] = {}
        """Producer id → the id that is not at rest under it."""

    def get(self, transactional_id: str) -> Txn | None:
        """The state of an id; None if it is unknown."""
        txn = self._decoded.get(transactional_id)
        if txn is not None:
            return txn
        value = self._encoded.get(transactional_id)
        return None if value is None else decode_value(value)

    def replay(self, record: TxnRecord) -> None:
        """Fold in a record that is in the log: one just appended, or one a start reads."""
        transactional_id, txn = record
        if self._encoded:
            self._encoded.pop(transactional_id, None)
        before = self._decoded.get(transactional_id)
        if before is not None and self._open.get(before.producer_id) == transactional_id:
            del self._open[before.producer_id]
        if txn is None:
            self._decoded.pop(transactional_id, None)
        elif isinstance(txn, bytes):
            self._encoded[transactional_id] = txn
            self._decoded.pop(transactional_id, None)
        else:
            self._decoded[transactional_id] = txn
            if txn.state not in AT_REST:
                self._open[txn.producer_id] = transactional_id

    def owner_of(self, partition: TopicPartition, producer_id: int) -> str | None:
        """The id whose transaction of a producer is open on a partition; None if none is."""
        transactional_id = self._open.get(producer_id)
        if transactional_id is None or partition not in self._decoded[transactional_id].partitions:
            return None
        return transactional_id

    def compact_idle(self, before_ms: int) -> None:
        """Encode the ids that have been at rest since before a time, to save memory."""
        for transactional_id, txn in list(self._decoded.items()):
            if txn.state in AT_REST and txn.updated_ms < before_ms:
                self._encoded[transactional_id] = encode_value(txn)
                del self._decoded[transactional_id]

    def decoded(self) -> list[tuple[str, Txn]]:
        """The ids that do not sleep, every open transaction among them."""
        return list(self._decoded.items())

    def items(self) -> Iterator[tuple[str, Txn]]:
        """All ids, as they were when the first was taken. Cost: sleeping ones are decoded."""
        decoded, encoded = list(self._decoded.items()), list(self._encoded.items())
        yield from decoded
        for transactional_id, value in encoded:
            yield transactional_id, decode_value(value)

    def expired(self, now_ms: int, expiration_ms: int) -> list[str]:
        """The ids that have been at rest for so long that they may be forgotten."""
        expired_ids = [
            transactional_id
            for transactional_id, txn in self._decoded.items()
            if is_expired(txn, now_ms, expiration_ms)
        ]
        for transactional_id, value in self._encoded.items():
            since_ms = at_rest_since_ms(value)
            assert since_ms is not None, f"{transactional_id} sleeps"
            if since_ms <= now_ms - expiration_ms:
                expired_ids.append(transactional_id)
        return expired_ids

    def __len__(self) -> int:
        return len(self._decoded) + len(self._encoded)
