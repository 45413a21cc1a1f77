"""The topics of a processor at the cluster: made if they are missing, and their partitions."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from txn.access.librdkafka import in_librdkafkas_names
from txn.client.deadline import Deadline
from txn.client.failures import error_of, translate
from txn.client.library_log import LibraryLog
from txn.client.reach import CONNECT_TIMEOUT, Reach
from txn.errors import ConfigError
from txn.identifiers import TopicPartition as Place

TIMEOUT_S: Final = 30.0
SLICE_S: Final = 1.0

_logger: Final = logging.getLogger("txn.processor")


class Topics:
    """Looks up and makes topics for the processor of one group.

    Args:
        settings: The properties of a connection.
        group: The group, for messages.
    """

    def __init__(self, settings: Mapping[str, object], group: str) -> None:
        self._whose = f"the processor of group {group!r}"
        named: dict[str, Any] = in_librdkafkas_names(dict(settings))
        self._reach = Reach(named, self._whose, CONNECT_TIMEOUT)
        named.setdefault("logger", LibraryLog())
        try:
            self._admin = AdminClient(named)
        except KafkaException as raised:
            raise self._failure(raised, "connecting") from raised

    def make_missing(self, topics: Sequence[str]) -> None:
        """Make the topics that are missing, with the cluster's defaults.

        Raises:
            UnreachableError: no broker is at the bootstrap servers.
            TxnError: the cluster does not answer, or refuses.
        """
        known = self._partitions()
        missing = [name for name in topics if name not in known]
        if not missing:
            return
        made = self._admin.create_topics([NewTopic(name, -1, -1) for name in missing])
        for name, future in made.items():
            try:
                future.result(TIMEOUT_S)
                _logger.info("processor.topic_made topic=%s", name)
            except KafkaException as raised:
                if error_of(raised).code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise self._failure(raised, f"making topic {name!r}") from raised

    def partitions_of(self, topics: Sequence[str]) -> frozenset[Place]:
        """Return the partitions of topics.

        Raises:
            ConfigError: a topic is not there.
            TxnError: as `make_missing`.
        """
        known = self._partitions()
        for name in topics:
            if name not in known:
                raise ConfigError(
                    f"{self._whose} cannot catch up with topic {name!r}, which is not there. "
                    f"Create it: `txn topics create {name}`"
                )
        return frozenset((name, index) for name in topics for index in known[name])

    def _partitions(self) -> dict[str, list[int]]:
        deadline = Deadline(TIMEOUT_S)
        while True:
            try:
                found: Any = self._admin.list_topics(timeout=SLICE_S)
                self._reach.prove()
                return {
                    name: list(topic.partitions)
                    for name, topic in found.topics.items()
                    if topic.error is None
                }
            except KafkaException as raised:
                self._reach.check()
                if deadline.has_passed:
                    raise self._failure(raised, "asking for topics") from raised

    def _failure(self, raised: KafkaException, doing: str) -> Exception:
        return translate(error_of(raised), whose=self._whose, doing=doing)
