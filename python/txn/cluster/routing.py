"""Requests that go to the broker in charge: a partition's leader, or a key's coordinator.

If the answer names another broker, or asks for a later attempt, the metadata is read anew and the
request is sent again. After `TRIES_MAX` attempts the error of the answer is raised.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from txn.cluster.brokers import OTHER_SOURCES, Brokers, Fields, RemoteBroker
from txn.errors import RejectedError, RetriableError, TxnError
from txn.identifiers import TopicPartition
from txn.security.client import PLAIN, SecuritySettings
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode
from txn.wire.transaction_descriptions import EXPLAIN_CLIENT_ID

GROUP_KEY: Final = 0
TRANSACTION_KEY: Final = 1
"""FindCoordinator key types: the key is a group, a transactional id."""

MOVING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
)
"""Errors after which another broker answers, or the same one a moment later."""
TRIES_MAX: Final = 5

RETRY_S: Final = 0.2

ADVICE: Final[Mapping[ErrorCode, str]] = {
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (
        "Its user needs Describe on the transactional id, Write to abort"
    ),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Its user needs Describe on the group",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Its user needs Read and Describe on the topic",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Its user needs Alter on the cluster",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "It may have been deleted just now",
}


class RoutedCluster:
    """The brokers of a running cluster, its topics, and the leader of each partition.

    `ClusterSource` has the arguments and the errors.
    """

    def __init__(
        self,
        servers: str,
        *,
        security: SecuritySettings = PLAIN,
        timeout_s: float = 10.0,
        wait: Callable[[float], object] = time.sleep,
        advice: str = OTHER_SOURCES,
        client_id: str = EXPLAIN_CLIENT_ID,
    ) -> None:
        self.wait = wait
        self._brokers = Brokers(
            servers, security=security, timeout_s=timeout_s, advice=advice, client_id=client_id
        )
        self._nodes: dict[int, RemoteBroker] = {}
        self._leaders: dict[TopicPartition, int] = {}
        self._topics: dict[str, list[int]] = {}
        try:
            self._entry = self._brokers.any()
            self._look_up()
        except TxnError:
            self.close()
            raise

    def close(self) -> None:
        """Close every connection."""
        self._brokers.close()

    def topics(self) -> Mapping[str, Sequence[int]]:
        """Topic → its partitions, internal topics too."""
        return MappingProxyType(self._topics)

    def call_leader(
        self, partition: TopicPartition, api_key: int, versions: range, request: Fields
    ) -> Any:
        """Send a request to the leader of a partition; return the answer."""
        return self._leader(partition).call(api_key, versions, request)

    def _ask_leaders(
        self,
        api_key: int,
        versions: range,
        partitions: Collection[TopicPartition],
        request_for: Callable[[Mapping[str, Sequence[int]]], Fields],
        refused: dict[TopicPartition, str] | None = None,
    ) -> dict[TopicPartition, Any]:
        """Ask every leader about its partitions; those without a leader are left out.

        Raises:
            RejectedError: a partition cannot be asked; it says which, and why. With `refused` it
                gets the partition and the reason instead.
        """
        answers: dict[TopicPartition, Any] = {}
        left = set(partitions)
        for attempt in range(TRIES_MAX):
            if attempt:
                self.wait(RETRY_S)
                self._look_up()
            for node_id, topics in self._by_leader(left).items():
                for topic in (
                    self._nodes[node_id].call(api_key, versions, request_for(topics)).topics
                ):
                    for answer in topic.partitions:
                        if answer.error_code in MOVING:
                            continue
                        name = f"{topic.name}-{answer.partition_index}"
                        try:
                            require(answer.error_code, f"partition {name}")
                        except RejectedError as error:
                            if refused is None:
                                raise
                            refused[topic.name, answer.partition_index] = error.message
                        answers[topic.name, answer.partition_index] = answer
            left -= answers.keys()
            if not left:
                break
        return answers

    def _by_leader(self, partitions: Collection[TopicPartition]) -> dict[int, dict[str, list[int]]]:
        by_leader: dict[int, dict[str, list[int]]] = {}
        for topic, index in sorted(partitions):
            node_id = self._leaders.get((topic, index), -1)
            if node_id in self._nodes:
                by_leader.setdefault(node_id, {}).setdefault(topic, []).append(index)
        return by_leader

    def _leader(self, partition: TopicPartition) -> RemoteBroker:
        node_id = self._leaders.get(partition, -1)
        if node_id not in self._nodes:
            topic, index = partition
            raise RetriableError(
                f"no broker leads {topic}-{index} at the moment. Bring one of its replicas back"
            )
        return self._nodes[node_id]

    def coordinator(self, transactional_id: str) -> RemoteBroker:
        """The broker that coordinates a transactional id."""
        return self._coordinator(TRANSACTION_KEY, transactional_id, "transactional id")

    def _coordinator(self, key_type: int, key: str, kind: str) -> RemoteBroker:
        request = {"key": key, "key_type": key_type}
        ask = partial(self._entry.call, ApiKey.FIND_COORDINATOR, range(1, 4), request)
        node = self._settled(ask, f"{kind} {key!r}")
        return self._brokers.at(node.host, node.port)

    def _settled(self, ask: Callable[[], Any], what: str) -> Any:
        """Ask again while the answer names another broker, or asks for a later attempt."""
        for _ in range(TRIES_MAX):
            answer = ask()
            if answer.error_code not in MOVING:
                break
            self.wait(RETRY_S)
            self._look_up()
        require(answer.error_code, what)
        return answer

    def _look_up(self) -> None:
        request = {
            "topics": None,
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        answer = self._entry.call(ApiKey.METADATA, range(4, 10), request)
        self._nodes = {
            each.node_id: self._brokers.at(each.host, each.port) for each in answer.brokers
        }
        self._topics = {
            topic.name: sorted(each.partition_index for each in topic.partitions)
            for topic in sorted(answer.topics, key=lambda topic: topic.name)
        }
        self._leaders = {
            (topic.name, each.partition_index): each.leader_id
            for topic in answer.topics
            for each in topic.partitions
        }


def require(code: int, what: str) -> None:
    """Check an error code. Raises RejectedError, RetriableError."""
    if code == ErrorCode.NONE:
        return
    said = f"{ErrorCode(code).name}{f' for {what}' if what else ''}"
    if code in MOVING:
        raise RetriableError(f"the cluster keeps answering {said}. Try again in a moment")
    advice = ADVICE.get(ErrorCode(code), "See its log")
    raise RejectedError(f"the broker answers {said}. {advice}", code=int(code))
