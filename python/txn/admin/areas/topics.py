"""`cluster.topics`: lists, describes, creates, grows and deletes topics."""

from collections.abc import Mapping, Sequence

from txn.admin.cluster import RunningCluster
from txn.admin.records import LogSize, log_sizes
from txn.admin.topics import (
    CLUSTER_DEFAULT,
    DescribedTopic,
    NewTopic,
    add_partitions,
    create_topic,
    delete_topic,
    described_topics,
)
from txn.errors import ConfigError
from txn.metadata.image import INTERNAL_TOPICS


class Topics:
    """The topics of a cluster. Every method may raise RetriableError: no broker answers."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running

    def list(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of the topics that the user may see, sorted.

        Args:
            include_internal: Also `__consumer_offsets` and other topics of the brokers.
        """
        self._running.refresh()
        known = self._running.topics()
        return sorted(name for name in known if include_internal or name not in INTERNAL_TOPICS)

    def describe(self, *names: str) -> Sequence[DescribedTopic]:
        """Return topics by name: partitions, replicas, and the settings that somebody set.

        Args:
            names: Topics; without one, all that are not internal.

        Raises:
            ConfigError: a topic does not exist; the message has the nearest name.
            RejectedError: the user may not see a topic or its settings.
        """
        return described_topics(self._running, names)

    def create(
        self,
        name: str,
        *,
        partitions: int = CLUSTER_DEFAULT,
        replication_factor: int = CLUSTER_DEFAULT,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        """Create a topic, and wait until every broker's metadata has its leaders.

        Args:
            name: Up to 249 letters, digits, dots, underscores and hyphens.
            partitions: Their number, at least 1; left out: the cluster's `num.partitions`.
            replication_factor: Copies of each partition; left out: the cluster's default.
            configs: Settings by Kafka's names, such as `{"cleanup.policy": "compact"}`.
            validate_only: Check the request, and create nothing.

        Raises:
            RejectedError: the topic exists (`name` of the error is `TOPIC_ALREADY_EXISTS`), a
                name, number or setting does not fit, or the user may not.
            RetriableError: it is created, and the cluster does not know its leaders in time.

        Source: KIP-4, KIP-464 (the cluster's defaults).
        """
        new = NewTopic(name, partitions, replication_factor, configs or {})
        create_topic(self._running, new, is_dry_run=validate_only)

    def add_partitions(self, name: str, count: int, *, validate_only: bool = False) -> None:
        """Enlarge a topic to `count` partitions in all. New records of a key may move.

        Raises:
            ConfigError: the topic does not exist.
            RejectedError: it has as many or more, or the user may not.

        Source: KIP-195.
        """
        add_partitions(self._running, name, count, is_dry_run=validate_only)

    def delete(self, *names: str) -> None:
        """Delete topics with their records, one after the other.

        Raises:
            ConfigError: no topic is named.
            RejectedError: a topic does not exist (`name` of the error is
                `UNKNOWN_TOPIC_OR_PARTITION`), the cluster forbids deletion, or the user may not.
                The topics before it are deleted.
        """
        if not names:
            raise ConfigError("name the topics to delete: delete() deletes nothing by itself")
        for name in names:
            delete_topic(self._running, name)

    def sizes(self, *names: str) -> Sequence[LogSize]:
        """Return the bytes of each partition at each broker, by topic, partition and broker.

        Raises:
            ConfigError: a topic does not exist.
            RejectedError: a directory cannot be read, or the user may not.

        Source: KIP-113.
        """
        self._running.require_topics(names)
        return log_sizes(self._running, names or self.list())
