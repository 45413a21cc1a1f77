"""The rules of all APIs: the operations on resources that each of them asks for.

Operations and error codes are those of Apache Kafka 4.2 (KafkaApis, ControllerApis), and so are the
resources that an answer leaves out. Produce and Fetch are checked where they are answered, in
`rust/txn-net/src/access.rs`.
"""

from collections.abc import Mapping
from typing import Final

from txn.broker.apis.access import Rule
from txn.broker.apis.rules import cluster, groups, quotas, topics, transactions, users
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.node import Node
from txn.broker.transactions.coordinator import TransactionCoordinator

OF_NODE: Final[Mapping[int, Rule[Node]]] = {
    rule.key: rule for rule in (*cluster.RULES, *quotas.RULES, *topics.RULES, *users.RULES)
}
OF_TRANSACTIONS: Final[Mapping[int, Rule[TransactionCoordinator]]] = {
    rule.key: rule for rule in transactions.RULES
}
OF_GROUPS: Final[Mapping[int, Rule[GroupCoordinator]]] = {rule.key: rule for rule in groups.RULES}
"""API key → its rule, by the service that answers it."""
