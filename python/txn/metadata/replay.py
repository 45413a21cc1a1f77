"""Reading the metadata log back into an image. Pure.

Apache Kafka's controller writes records that belong together, too many for one batch, as a
transaction: its records count once its end is there, and never if it is aborted. It ends or
aborts one before it writes anything else, so there is one at a time.

Source: KIP-868.
"""

import uuid

from txn.metadata.image import Image
from txn.metadata.record_encoding import decode, name_passed_over
from txn.metadata.records import (
    UNENFORCED,
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    MetadataRecord,
    RemoveTopicRecord,
)


class MetadataReplay:
    """Folds stored records into an image, in the order of the log."""

    def __init__(self, image: Image) -> None:
        self.image = image
        self.deleted: set[uuid.UUID] = set()
        """The topics that are gone."""
        self.unenforced: set[str] = set()
        """Types of records that somebody may rely on and this broker does not act on."""
        self._held: list[MetadataRecord] | None = None

    @property
    def is_open(self) -> bool:
        """True while a transaction has neither ended nor been aborted."""
        return self._held is not None

    def read(self, value: bytes) -> None:
        """Read the next record's value.

        Raises:
            ValueError: it cannot be read, see `records.decode`.
        """
        match decode(value):
            case None:
                self.unenforced |= {name_passed_over(value)} & UNENFORCED
            case BeginTransactionRecord():
                self._held = []
            case EndTransactionRecord():
                held, self._held = self._held or [], None
                for record in held:
                    self._apply(record)
            case AbortTransactionRecord():
                self._held = None
            case record if self._held is not None:
                self._held.append(record)
            case record:
                self._apply(record)

    def _apply(self, record: MetadataRecord) -> None:
        self.image.apply(record)
        if isinstance(record, RemoveTopicRecord):
            self.deleted.add(record.topic_id)
