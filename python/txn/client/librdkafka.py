"""The engine `confluent-kafka`: librdkafka's producer, with reports for deliveries."""

from collections.abc import Callable
from functools import partial
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, Message

from txn import forks
from txn.client.callbacks import keeping_fatal_error
from txn.client.delivery import Delivery


class Librdkafka(confluent_kafka.Producer):
    """librdkafka's producer, known to `txn.forks` by itself.

    The traceback of an error may keep it from being freed after its `Producer` was closed. A
    forked child must not free it either.
    """

    append: None = None

    def __init__(
        self,
        settings: dict[str, object],
        on_report: Callable[[Delivery, KafkaError | None, Message], None],
    ) -> None:
        super().__init__(settings)
        self._on_report = keeping_fatal_error(on_report)
        forks.watch(self)

    def produce_tracked(self, topic: str, *, delivery: Delivery, **record: Any) -> None:
        """Take a record, and report its end to the delivery."""
        self.produce(topic, **record, on_delivery=partial(self._on_report, delivery))

    def collect(self, timeout: float, /) -> int:
        """Serve the callbacks that are due, those of reports among them."""
        return int(self.poll(timeout))

    def _abandon(self, parent: int) -> None:
        """Do nothing: its `Producer` refuses every use in a forked child; see `txn.forks`."""
