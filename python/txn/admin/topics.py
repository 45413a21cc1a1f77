"""Describes, creates, grows and deletes topics of a running cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from txn.admin.cluster import RunningCluster
from txn.admin.configs import TOPIC, ConfigEntry, described_configs
from txn.admin.refusals import require
from txn.wire.api_keys import ApiKey

TIMEOUT_MS: Final = 30_000
"""Time that brokers have for a change."""

VERSIONS_OF_CREATE: Final = range(2, 5)
"""The later answers have a tagged field of their own, see `decode_untrusted`."""

CLUSTER_DEFAULT: Final = -1
"""The number of partitions or replicas that leaves it to the cluster."""


@dataclass(frozen=True, slots=True)
class PartitionReplicas:
    """The brokers of a partition; `leader` is None if it has no leader."""

    index: int
    leader: int | None
    replicas: Sequence[int]
    in_sync: Sequence[int]


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic: its partitions by number, and the settings that differ from the cluster's."""

    name: str
    topic_id: str | None
    is_internal: bool
    partitions: Sequence[PartitionReplicas]
    configs: Sequence[ConfigEntry]

    @property
    def replication_factor(self) -> int:
        """The number of replicas of its first partition."""
        return len(self.partitions[0].replicas) if self.partitions else 0


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to make; `CLUSTER_DEFAULT` leaves a number to the cluster."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def described_topics(cluster: RunningCluster, names: Sequence[str]) -> list[DescribedTopic]:
    """Describe topics, all that are not internal if none is named.

    Raises:
        ConfigError: a topic is not there.
        RejectedError: its user may not see one.
    """
    cluster.require_topics(names)
    found = [
        each for each in cluster.metadata(names or None).topics if names or not each.is_internal
    ]
    for each in found:
        refused = f"topic {each.name!r} cannot be looked at"
        require(each.error_code, None, refused, needs="Describe on the topic")
    ordered = sorted(found, key=lambda each: each.name)
    configs = described_configs(cluster, [(TOPIC, each.name) for each in ordered])
    return [
        DescribedTopic(
            each.name,
            str(each.topic_id) if getattr(each, "topic_id", None) else None,
            each.is_internal,
            [
                PartitionReplicas(
                    partition.partition_index,
                    partition.leader_id if partition.leader_id >= 0 else None,
                    list(partition.replica_nodes),
                    list(partition.isr_nodes),
                )
                for partition in sorted(each.partitions, key=lambda one: one.partition_index)
            ],
            [entry for entry in entries if entry.is_override],
        )
        for each, entries in zip(ordered, configs, strict=True)
    ]


def create_topic(cluster: RunningCluster, new: NewTopic, *, is_dry_run: bool) -> None:
    """Make a topic, and wait until the cluster knows its partitions.

    Raises:
        RejectedError: it is there, its name or a setting does not fit, or its user may not.
        RetriableError: it is made, and no broker knows it yet.
    """
    configs = [{"name": name, "value": value} for name, value in new.configs.items()]
    request = {
        "topics": [
            {
                "name": new.name,
                "num_partitions": new.partitions,
                "replication_factor": new.replication_factor,
                "assignments": [],
                "configs": configs,
            }
        ],
        "timeout": TIMEOUT_MS,
        "validate_only": is_dry_run,
    }
    answer = cluster.ask_controller(ApiKey.CREATE_TOPICS, VERSIONS_OF_CREATE, request)
    (made,) = answer.topics
    refused = f"topic {new.name!r} is not made"
    require(made.error_code, made.error_message, refused, needs="Create on the topic")
    if not is_dry_run:
        cluster.await_topic(new.name)


def add_partitions(cluster: RunningCluster, name: str, count: int, *, is_dry_run: bool) -> None:
    """Enlarge a topic to a number of partitions.

    Raises:
        ConfigError: the topic is not there.
        RejectedError: it has as many or more, or its user may not.
    """
    cluster.require_topics([name])
    request = {
        "topics": [{"name": name, "count": count, "assignments": None}],
        "timeout": TIMEOUT_MS,
        "validate_only": is_dry_run,
    }
    answer = cluster.ask_controller(ApiKey.CREATE_PARTITIONS, range(4), request)
    (result,) = answer.results
    refused = f"topic {name!r} keeps its partitions"
    require(result.error_code, result.error_message, refused, needs="Alter on the topic")


def delete_topic(cluster: RunningCluster, name: str) -> None:
    """Delete a topic with its records.

    Raises:
        RejectedError: it is not there, deletion is turned off, or its user may not.
    """
    request = {
        "topics": [{"name": name, "topic_id": None}],
        "topic_names": [name],
        "timeout": TIMEOUT_MS,
    }
    answer = cluster.ask_controller(ApiKey.DELETE_TOPICS, range(1, 7), request)
    (result,) = answer.responses
    told = getattr(result, "error_message", None)
    refused = f"topic {name!r} is not deleted"
    require(result.error_code, told, refused, needs="Delete on the topic")
