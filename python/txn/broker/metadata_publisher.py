"""The port through which metadata reaches the broker: records → image and delta → subscribers.

Invariant: the image and its subscribers see a record only once it is as durable as promised. All of
them see the records in the order of the log. So nothing is stored in a topic, and no decision
rests on a setting, that a power failure can undo.

Only the owner of the records calls `publish`: the local controller today, the follower of a
metadata quorum tomorrow.
"""

from collections.abc import Callable, Sequence

from txn.metadata.delta import Delta, apply_all
from txn.metadata.image import Image
from txn.metadata.records import MetadataRecord

Subscriber = Callable[[Image, Delta], None]
"""Follows a change that the image has; raises nothing, since the change has happened."""


class MetadataPublisher:
    """The published image, and its subscribers in the order in which they follow it.

    Args:
        image: The fold of all records that are published so far. A subscriber is built from it and
            subscribes before the next change.
    """

    def __init__(self, image: Image) -> None:
        self.image = image
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Call a subscriber at every later change, after the earlier subscribers."""
        self._subscribers.append(subscriber)

    def publish(self, records: Sequence[MetadataRecord]) -> None:
        """Apply records that are durable, and let the subscribers follow."""
        delta = apply_all(self.image, records)
        for subscriber in self._subscribers:
            subscriber(self.image, delta)
