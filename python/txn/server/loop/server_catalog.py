"""The catalog of the sockets: topics, limits and quotas that Produce and Fetch need at once.

The server holds a topic's partitions weakly, because they know the node and so the server.
"""

from collections.abc import Mapping, Sequence
from weakref import ref

from txn import _core
from txn.broker.partitions import TopicPartitions
from txn.broker.shell import ClientQuota
from txn.errors import StorageError
from txn.metadata.image import Topic
from txn.storage.native_log import NativeLog

UNKNOWN_TOPIC_OR_PARTITION = 3


class ServerCatalog:
    """Passes topics and producers on to the sockets; a `txn.broker.shell.Catalog`."""

    def __init__(self, server: _core.Server) -> None:
        self._server = server

    def add_topic(self, topic: Topic, partitions: TopicPartitions) -> None:
        """Serve a topic's partitions; a reactor asks for the log of each when it first needs it.

        The server holds them weakly: they know the node and so the server, a cycle through Rust
        that would never be collected.
        """
        held = ref(partitions)

        def log_of(index: int) -> _core.PartitionLog | int:
            known = held()
            if known is None:
                return UNKNOWN_TOPIC_OR_PARTITION  # it was deleted
            try:
                store = known[index]
            except IndexError:
                return UNKNOWN_TOPIC_OR_PARTITION  # it is being deleted
            except StorageError as error:
                return error.code
            assert isinstance(store, NativeLog), f"{topic.name} is not on disk"
            return store.log

        self._server.add_topic(
            topic.name, topic.topic_id.bytes, len(partitions), log_of, is_internal=topic.is_internal
        )

    def remove_topic(self, name: str) -> None:
        """Serve a topic no longer."""
        self._server.remove_topic(name)

    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Acknowledge a producer's transactional batches only once they are on the disk, or not."""
        self._server.sync_before_ack(producer_id, is_forced)

    def publish_creation_rates(
        self, default: float | None, of_addresses: Mapping[str, float]
    ) -> None:
        """Limit connections per second by address; `default` is for all others."""
        self._server.limit_creation_rates(default, of_addresses)

    def forget_verdicts(self) -> None:
        """Ask the authorizer again for every Produce and Fetch."""
        self._server.forget_verdicts()

    def publish_quotas(self, quotas: Sequence[ClientQuota], *, samples: int, length_s: int) -> None:
        """Apply these quotas to the sockets' clients from now on."""
        self._server.publish_quotas(quotas, samples=samples, length_s=length_s)

    def close(self) -> None:
        """Release the server; nothing is passed on any more."""
        del self._server
