"""Identifiers that every layer uses: a partition's, and a producer's."""

from typing import Final, NamedTuple

TopicPartition = tuple[str, int]
"""A topic's name and a partition's number.

The clients call it `Place`: there confluent_kafka has a class of this name, which has an offset.
"""

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1

LAST_PRODUCER_EPOCH: Final = 32767 - 1
"""The last epoch a client may hold; the one above it is kept for fencing its producer id."""


class ProducerIdAndEpoch(NamedTuple):
    """A producer id and its epoch: the identity in every request of a client."""

    producer_id: int
    producer_epoch: int

    @property
    def is_exhausted(self) -> bool:
        """True if no epoch is left to hand out for this producer id."""
        return self.producer_epoch >= LAST_PRODUCER_EPOCH


NO_PRODUCER: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
