"""`RunningCluster`: a `ClusterSource` that also sends the requests of an administrator.

Requests go through the client in Rust, as those of `txn explain` do. So every command has the same
errors for an address, a certificate or a log-in that does not fit.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from txn.admin.refusals import require, unknown
from txn.cluster.brokers import Fields, RemoteBroker
from txn.cluster.routing import GROUP_KEY
from txn.cluster.source import READ_COMMITTED, READ_UNCOMMITTED, ClusterSource
from txn.errors import ConfigError, RetriableError
from txn.hints import did_you_mean
from txn.identifiers import TopicPartition
from txn.metadata.image import name_fault
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

METADATA_VERSIONS: Final = range(4, 13)

WAIT_S: Final = 0.05
WAITS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A broker of a cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None


def no_partition(topic: str, partition: int, count: int) -> str:
    """Return the message about a partition that a topic does not have."""
    return f"topic {topic!r} has no partition {partition}: it has {count}, from 0 on"


class RunningCluster(ClusterSource):
    """A running cluster; its arguments and errors are those of `ClusterSource`."""

    def ask(self, api_key: ApiKey, versions: range, request: Fields) -> Any:
        """Send a request to any broker; return the answer."""
        return self._entry.call(api_key, versions, request)

    @property
    def any_broker(self) -> RemoteBroker:
        """The broker that answered first."""
        return self._entry

    def ask_controller(self, api_key: ApiKey, versions: range, request: Fields) -> Any:
        """Send a request to the controller, or to a broker that forwards it there."""
        controller = self._nodes.get(self.metadata([]).controller_id, self._entry)
        return controller.call(api_key, versions, request)

    def ask_node(self, node_id: int, api_key: ApiKey, versions: range, request: Fields) -> Any:
        """Send a request to one broker. Raises ConfigError: there is none with this id."""
        node = self._nodes.get(node_id)
        if node is None:
            known = ", ".join(map(str, sorted(self._nodes)))
            raise ConfigError(f"there is no broker {node_id}; the brokers here are: {known}")
        return node.call(api_key, versions, request)

    def group_coordinator(self, group_id: str) -> RemoteBroker:
        """The broker that coordinates a group."""
        return self._coordinator(GROUP_KEY, group_id, "group")

    def refresh(self) -> None:
        """Learn of topics, leaders and brokers anew."""
        self._look_up()

    @property
    def node_ids(self) -> list[int]:
        """The ids of the brokers, sorted."""
        return sorted(self._nodes)

    def metadata(self, topics: Iterable[str] | None) -> Any:
        """The answer to Metadata about some topics; None: about all."""
        request = {
            "topics": None
            if topics is None
            else [{"topic_id": None, "name": name} for name in topics],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return self.ask(ApiKey.METADATA, METADATA_VERSIONS, request)

    def require_topics(self, names: Iterable[str]) -> None:
        """Check that topics of these names exist and that the user may see them.

        Raises:
            ConfigError: a topic is not there; the message has the nearest name.
            RejectedError: the user may not see it.
        """
        for name in names:
            if name in self._topics:
                continue
            name.encode()  # `main` reports a name that is no UTF-8
            if (fault := name_fault(name)) is not None:
                raise ConfigError(f"{fault}{did_you_mean(name, self._topics)}")
            (found,) = self.metadata([name]).topics
            if found.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                refused = f"topic {name!r} cannot be looked at"
                require(found.error_code, None, refused, needs="Describe on the topic")
            if found.error_code != ErrorCode.NONE:
                hint = did_you_mean(name, self._topics)
                raise unknown("topic", name, hint, "txn topics list")
            self._look_up()

    def await_topic(self, name: str) -> None:
        """Wait until a new topic is known with all its leaders: a controller answers before that.

        Raises RetriableError: it takes long.
        """
        for _ in range(WAITS_MAX):
            (found,) = self.metadata([name]).topics
            codes = {found.error_code, *(each.error_code for each in found.partitions)}
            if codes == {ErrorCode.NONE} and found.partitions:
                self._look_up()
                return
            self.wait(WAIT_S)
        raise RetriableError(f"topic {name!r} is made, and no broker knows it yet. Wait for it")

    def partitions(self, text: str) -> list[TopicPartition]:
        """The partitions of a topic, or the one that `TOPIC-N` names.

        Raises as `require_topics`, and ConfigError for a partition that is not there.
        """
        name, dash, number = text.rpartition("-")
        if text not in self._topics and dash and number.isdigit() and name in self._topics:
            if int(number) not in self._topics[name]:
                raise ConfigError(no_partition(name, int(number), len(self._topics[name])))
            return [(name, int(number))]
        self.require_topics([text])
        return [(text, index) for index in self._topics[text]]

    def offsets(
        self,
        partitions: Collection[TopicPartition],
        timestamp: int,
        *,
        is_committed: bool = True,
    ) -> Mapping[TopicPartition, int]:
        """The offsets at a time, or at `LATEST` or `EARLIEST`; -1: no record is so young.

        A partition without a leader is left out.
        """
        level = READ_COMMITTED if is_committed else READ_UNCOMMITTED
        return self._offsets(partitions, timestamp, level)

    def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Commit offsets of a group without members; return the error codes by partition."""
        by_topic: dict[str, list[Fields]] = {}
        for (topic, index), offset in sorted(offsets.items()):
            entry = {
                "partition_index": index,
                "committed_offset": offset,
                "committed_leader_epoch": -1,
                "committed_metadata": "",
            }
            by_topic.setdefault(topic, []).append(entry)
        request = {
            "group_id": group_id,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": name, "partitions": entries} for name, entries in by_topic.items()],
        }
        coordinator = self.group_coordinator(group_id)
        answer = coordinator.call(ApiKey.OFFSET_COMMIT, range(3, 9), request)
        return {
            (topic.name, partition.partition_index): int(partition.error_code)
            for topic in answer.topics
            for partition in topic.partitions
        }

    def nodes(self) -> tuple[str | None, int, list[ClusterNode]]:
        """The cluster id, the id of the controller, and the brokers."""
        answer = self.metadata([])
        nodes = [
            ClusterNode(each.node_id, each.host, each.port, each.rack)
            for each in sorted(answer.brokers, key=lambda each: each.node_id)
        ]
        return answer.cluster_id, answer.controller_id, nodes
