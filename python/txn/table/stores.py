"""Where the rows of a table are kept: `Store`, and the one in memory."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

Rows = Mapping[bytes, bytes | None]
"""Key → value; None deletes the row."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a store has read a partition of the topic.

    Attributes:
        next_offset: The first offset that was not read.
        current_ms: Milliseconds since the epoch. The store has seen every deletion that the topic
            has kept since then.
    """

    next_offset: int
    current_ms: int


class Store(Protocol):
    """The rows of a table by partition, and the place up to which the topic was read."""

    @property
    def is_kept(self) -> bool:
        """True if the rows outlive the process."""
        ...

    def belong_to(self, topic: str, topic_id: bytes | None) -> None:
        """Note the topic of the rows; forget all rows of another topic id.

        Raises ConfigError: the store keeps another topic's rows.
        """
        ...

    def place(self, partition: int) -> Place | None:
        """Return how far a partition was read; None: not at all."""
        ...

    def get(self, partition: int, key: bytes) -> bytes | None:
        """Return a row's value; None: there is no such row."""
        ...

    def keys(self, partition: int) -> Iterable[bytes]:
        """Return the keys of a partition. The store must not change meanwhile."""
        ...

    def count(self, partition: int) -> int:
        """Return the number of rows of a partition."""
        ...

    def apply(self, partition: int, rows: Rows, place: Place | None) -> None:
        """Store rows and the place that was read, all or nothing; None leaves the place.

        Raises StorageError: the disk refused; nothing was stored.
        """
        ...

    def clear(self, partition: int) -> None:
        """Forget the rows and the place of a partition."""
        ...

    def close(self) -> None:
        """Let go of the store. Can be repeated."""
        ...


class MemoryStore:
    """Rows in dictionaries, gone with the process."""

    is_kept = False

    def __init__(self) -> None:
        self._topic_id: bytes | None = None
        self._rows: dict[int, dict[bytes, bytes]] = {}
        self._places: dict[int, Place] = {}

    def belong_to(self, topic: str, topic_id: bytes | None) -> None:
        """Forget all rows if the topic has another id."""
        if topic_id != self._topic_id:
            self._rows.clear()
            self._places.clear()
        self._topic_id = topic_id

    def place(self, partition: int) -> Place | None:
        """Return how far a partition was read; None: not at all."""
        return self._places.get(partition)

    def get(self, partition: int, key: bytes) -> bytes | None:
        """Return a row's value; None: there is no such row."""
        return self._rows.get(partition, {}).get(key)

    def keys(self, partition: int) -> Iterator[bytes]:
        """Return the keys of a partition."""
        return iter(self._rows.get(partition, ()))

    def count(self, partition: int) -> int:
        """Return the number of rows of a partition."""
        return len(self._rows.get(partition, ()))

    def apply(self, partition: int, rows: Rows, place: Place | None) -> None:
        """Store rows and the place that was read."""
        own = self._rows.setdefault(partition, {})
        for key, value in rows.items():
            if value is None:
                own.pop(key, None)
            else:
                own[key] = value
        if place is not None:
            self._places[partition] = place

    def clear(self, partition: int) -> None:
        """Forget the rows and the place of a partition."""
        self._rows.pop(partition, None)
        self._places.pop(partition, None)

    def close(self) -> None:
        """Do nothing: the rows go with the object."""
