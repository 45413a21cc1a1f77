"""Administers a running cluster, txn's or Apache Kafka's, from Python.

    with txn.admin.connect("127.0.0.1:9092") as cluster:
        cluster.topics.create("orders", partitions=6)
        print(cluster.groups.describe("shop").lags)

`connect` opens a `Cluster`. The command line, the console and `txn explain` use the same functions.
Every error is one of `txn.errors`, and its `action` names the next step. Nothing here needs the
packages of the console, or the broker.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from txn.admin.areas.configs import Configs
    from txn.admin.areas.groups import Groups
    from txn.admin.areas.records import Records
    from txn.admin.areas.topics import Topics
    from txn.admin.areas.transactions import Transactions
    from txn.admin.cluster import ClusterNode
    from txn.admin.configs import ConfigEntry, ConfigKind
    from txn.admin.connecting import Cluster, DescribedCluster, connect
    from txn.admin.groups import OffsetChange
    from txn.admin.records import Deletion, LogSize
    from txn.admin.topics import DescribedTopic, PartitionReplicas
    from txn.cluster.facts import OpenTransaction, Owner, PartitionOffsets
    from txn.cluster.groups import DescribedGroup, GroupMember, ListedGroup, PartitionLag
    from txn.coordinator.transaction.states import TxnState
    from txn.explain.abort import AbortPlan, NothingOpen
    from txn.explain.questions import DescribedTransaction, Explanation, HoldingTransaction

__all__ = [
    "AbortPlan",
    "Cluster",
    "ClusterNode",
    "ConfigEntry",
    "ConfigKind",
    "Configs",
    "Deletion",
    "DescribedCluster",
    "DescribedGroup",
    "DescribedTopic",
    "DescribedTransaction",
    "Explanation",
    "GroupMember",
    "Groups",
    "HoldingTransaction",
    "ListedGroup",
    "LogSize",
    "NothingOpen",
    "OffsetChange",
    "OpenTransaction",
    "Owner",
    "PartitionLag",
    "PartitionOffsets",
    "PartitionReplicas",
    "Records",
    "Topics",
    "Transactions",
    "TxnState",
    "connect",
]

_LAZY: Final = {
    "AbortPlan": "txn.explain.abort",
    "Cluster": "txn.admin.connecting",
    "ClusterNode": "txn.admin.cluster",
    "ConfigEntry": "txn.admin.configs",
    "ConfigKind": "txn.admin.configs",
    "Deletion": "txn.admin.records",
    "DescribedCluster": "txn.admin.connecting",
    "DescribedGroup": "txn.cluster.groups",
    "DescribedTopic": "txn.admin.topics",
    "DescribedTransaction": "txn.explain.questions",
    "Explanation": "txn.explain.questions",
    "GroupMember": "txn.cluster.groups",
    "HoldingTransaction": "txn.explain.questions",
    "ListedGroup": "txn.cluster.groups",
    "LogSize": "txn.admin.records",
    "NothingOpen": "txn.explain.abort",
    "OffsetChange": "txn.admin.groups",
    "OpenTransaction": "txn.cluster.facts",
    "Owner": "txn.cluster.facts",
    "PartitionLag": "txn.cluster.groups",
    "PartitionOffsets": "txn.cluster.facts",
    "PartitionReplicas": "txn.admin.topics",
    "TxnState": "txn.coordinator.transaction.states",
    "Configs": "txn.admin.areas.configs",
    "Groups": "txn.admin.areas.groups",
    "Records": "txn.admin.areas.records",
    "Topics": "txn.admin.areas.topics",
    "Transactions": "txn.admin.areas.transactions",
    "connect": "txn.admin.connecting",
}
"""Loaded when first used: a command that needs one module of the package loads no other."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'txn.admin' has no attribute {name!r}")
