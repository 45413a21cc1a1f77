"""Every API this broker answers: its versions and its handler.

ApiVersions announces the entries of this table and no others. A module of handlers is loaded for
its first request, or by `txn.server.preload`: all of them would make a start a fifth longer.
"""

from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, NamedTuple

from txn.broker.apis.api import Api, Reply, Service
from txn.broker.group_coordinator import GroupCoordinator
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.transactions.coordinator import TransactionCoordinator
from txn.wire.api_keys import ApiKey

if TYPE_CHECKING:
    from txn.broker.apis.access import Answer, Rule
    from txn.security.acls import Authorizer

    LoadRules = Callable[[], Mapping[int, Rule[Service]]]

Versions = tuple[int, int]
"""First and last version."""

SERVED_BY_REACTORS: Final[dict[int, Versions]] = {ApiKey.PRODUCE: (3, 13), ApiKey.FETCH: (4, 18)}
"""Answered in Rust, without Python."""

API_VERSIONS_RANGE = (0, 4)


class Answerer(NamedTuple):
    """The types of an API, and the function that answers it."""

    request: type
    response: type
    answer: Callable[[object, Context], Coroutine[object, None, Reply]]


class BoundApi:
    """One API with the service that answers it.

    Args:
        key: Its key.
        versions: First and last version that is answered.
        load: Loads the rest, by the key, with the first request.
    """

    def __init__(self, key: int, versions: Versions, load: Callable[[int], Answerer]) -> None:
        self._key = key
        self.versions = versions
        self.served = range(versions[0], versions[1] + 1)
        """The versions that are answered."""
        self._load = load
        self._answerer: Answerer | None = None

    # Without `functools.cached_property`: its lock, one for all APIs, would be held for ever in a
    # child that is forked while a thread loads.

    @property
    def answerer(self) -> Answerer:
        """The types and the handler. Raises OSError where their module cannot be read."""
        if self._answerer is None:
            self._answerer = self._load(self._key)
        return self._answerer


class Area(Generic[Service]):
    """The APIs of one module.

    Args:
        versions: First and last version of each API.
        load: Loads the module; returns its APIs.
    """

    def __init__(
        self, versions: Mapping[int, Versions], load: Callable[[], Iterable[Api[Service]]]
    ) -> None:
        self.versions = versions
        self._load = load
        self._apis: Mapping[int, Api[Service]] | None = None

    @property
    def apis(self) -> Mapping[int, Api[Service]]:
        """The APIs by their keys. Raises OSError where the module cannot be read."""
        if self._apis is None:
            apis = {api.key: api for api in self._load()}
            assert apis.keys() == self.versions.keys(), f"{self._load.__name__}: {sorted(apis)}"
            self._apis = apis
        return self._apis

    def bound(
        self, service: Service, authorizer: "Authorizer | None", load_rules: "LoadRules[Service]"
    ) -> dict[int, BoundApi]:
        """The APIs, answered by a service; with an authorizer each by its rule."""
        # One for all of them: a start makes 45 of these.
        load = partial(self._answerer, service, authorizer, load_rules)
        return {key: BoundApi(key, versions, load) for key, versions in self.versions.items()}

    def _answerer(
        self,
        service: Service,
        authorizer: "Authorizer | None",
        load_rules: "LoadRules[Service]",
        key: int,
    ) -> Answerer:
        api = self.apis[key]
        answer: Answer = partial(api.answer, service)
        if authorizer is not None:
            answer = load_rules()[key].guarded(authorizer, service, answer)
        return Answerer(api.request, api.response, answer)


def _rules_of_node() -> "Mapping[int, Rule[Node]]":
    from txn.broker.apis.rules import OF_NODE

    return OF_NODE


def _rules_of_transactions() -> "Mapping[int, Rule[TransactionCoordinator]]":
    from txn.broker.apis.rules import OF_TRANSACTIONS

    return OF_TRANSACTIONS


def _rules_of_groups() -> "Mapping[int, Rule[GroupCoordinator]]":
    from txn.broker.apis.rules import OF_GROUPS

    return OF_GROUPS


def _metadata() -> Iterable[Api[Node]]:
    from txn.broker.apis import metadata

    return metadata.APIS


def _offsets() -> Iterable[Api[Node]]:
    from txn.broker.apis import offsets

    return offsets.APIS


def _configs() -> Iterable[Api[Node]]:
    from txn.broker.apis import configs

    return configs.APIS


def _log_dirs() -> Iterable[Api[Node]]:
    from txn.broker.apis import log_dirs

    return log_dirs.APIS


def _sasl() -> Iterable[Api[Node]]:
    from txn.broker.apis import sasl

    return sasl.APIS


def _acls() -> Iterable[Api[Node]]:
    from txn.broker.apis import acls

    return acls.APIS


def _quotas() -> Iterable[Api[Node]]:
    from txn.broker.apis import quotas

    return quotas.APIS


def _txn() -> Iterable[Api[TransactionCoordinator]]:
    from txn.broker.apis import txn

    return txn.APIS


def _txn_tools() -> Iterable[Api[TransactionCoordinator]]:
    from txn.broker.apis import txn_tools

    return txn_tools.APIS


def _groups() -> Iterable[Api[GroupCoordinator]]:
    from txn.broker.apis import groups

    return groups.APIS


AREAS_OF_NODE: Final = (
    Area(
        {
            ApiKey.METADATA: (0, 13),
            ApiKey.FIND_COORDINATOR: (0, 6),
            ApiKey.CREATE_TOPICS: (2, 7),
            ApiKey.DELETE_TOPICS: (1, 6),
            ApiKey.CREATE_PARTITIONS: (0, 3),
            ApiKey.DESCRIBE_CLUSTER: (0, 2),
        },
        _metadata,
    ),
    Area(
        {
            ApiKey.LIST_OFFSETS: (1, 11),
            ApiKey.DELETE_RECORDS: (0, 2),
            ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
        },
        _offsets,
    ),
    Area(
        {
            ApiKey.DESCRIBE_CONFIGS: (1, 4),
            ApiKey.ALTER_CONFIGS: (0, 2),
            ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
            ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
        },
        _configs,
    ),
    Area(
        {
            ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
        },
        _log_dirs,
    ),
    Area(
        {
            ApiKey.SASL_HANDSHAKE: (0, 1),
            ApiKey.SASL_AUTHENTICATE: (0, 2),
            ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (0, 0),
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (0, 0),
        },
        _sasl,
    ),
    Area(
        {
            ApiKey.DESCRIBE_ACLS: (1, 3),
            ApiKey.CREATE_ACLS: (1, 3),
            ApiKey.DELETE_ACLS: (1, 3),
        },
        _acls,
    ),
    Area(
        {
            ApiKey.DESCRIBE_CLIENT_QUOTAS: (0, 1),
            ApiKey.ALTER_CLIENT_QUOTAS: (0, 1),
        },
        _quotas,
    ),
)
AREAS_OF_TRANSACTIONS: Final = (
    Area(
        {
            ApiKey.INIT_PRODUCER_ID: (0, 6),
            ApiKey.ADD_PARTITIONS_TO_TXN: (0, 5),
            ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
            ApiKey.END_TXN: (0, 5),
        },
        _txn,
    ),
    Area(
        {
            ApiKey.WRITE_TXN_MARKERS: (1, 2),
            ApiKey.DESCRIBE_PRODUCERS: (0, 0),
            ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
            ApiKey.LIST_TRANSACTIONS: (0, 2),
        },
        _txn_tools,
    ),
)
GROUPS: Final = Area(
    {
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.OFFSET_FETCH: (1, 10),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.TXN_OFFSET_COMMIT: (0, 5),
        ApiKey.DELETE_GROUPS: (0, 2),
        ApiKey.OFFSET_DELETE: (0, 0),
    },
    _groups,
)


def build_table(node: Node) -> Mapping[int, BoundApi]:
    """Bind every API to the service that answers it."""
    authorizer = node.authorizer
    bound = [
        *(area.bound(node, authorizer, _rules_of_node) for area in AREAS_OF_NODE),
        *(
            area.bound(node.transactions, authorizer, _rules_of_transactions)
            for area in AREAS_OF_TRANSACTIONS
        ),
        GROUPS.bound(node.groups, authorizer, _rules_of_groups),
    ]
    table = {key: api for apis in bound for key, api in apis.items()}
    assert len(table) == sum(map(len, bound)), "an api key has two handlers"
    key = ApiKey.API_VERSIONS
    table[key] = BoundApi(key, API_VERSIONS_RANGE, lambda _: _versions(node, table))
    return table


def _versions(node: Node, table: Mapping[int, BoundApi]) -> Answerer:
    from txn.broker.apis.versions import ApiVersions, ApiVersionsRequest, ApiVersionsResponse

    ranges = {key: api.versions for key, api in table.items()} | SERVED_BY_REACTORS
    return Answerer(ApiVersionsRequest, ApiVersionsResponse, ApiVersions(node, ranges))
