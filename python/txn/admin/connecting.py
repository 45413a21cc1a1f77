"""`connect`: a running cluster for administrators, with one attribute for each noun."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

from txn.admin.areas.configs import Configs
from txn.admin.areas.groups import Groups
from txn.admin.areas.records import Records
from txn.admin.areas.topics import Topics
from txn.admin.areas.transactions import Transactions
from txn.admin.cluster import ClusterNode, RunningCluster
from txn.admin.way_in import SERVERS, merged, security_of, servers_of
from txn.errors import ConfigError, RetriableError, UnreachableError

CLIENT_ID: Final = "txn-admin"

ADVICE: Final = "Check bootstrap.servers, and that a broker runs there"


@dataclass(frozen=True, slots=True)
class DescribedCluster:
    """The id of a cluster, the id of its controller, and its brokers by id."""

    cluster_id: str | None
    controller_id: int
    brokers: Sequence[ClusterNode]


class Cluster:
    """A running cluster: txn's or Apache Kafka's; `connect` opens one.

    Attributes:
        topics: Lists, describes, creates, grows and deletes topics.
        groups: Lists and describes groups, measures lag, moves offsets.
        configs: Reads and changes settings of topics, brokers and groups.
        transactions: Lists, describes and explains transactions, and ends them.
        records: Offsets by place or time; deletes records.

    Use it from one thread at a time.
    """

    def __init__(self, running: RunningCluster) -> None:
        self._running = running
        self.topics = Topics(running)
        self.groups = Groups(running)
        self.configs = Configs(running)
        self.transactions = Transactions(running)
        self.records = Records(running)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def describe(self) -> DescribedCluster:
        """Return the cluster's id, its controller and its brokers."""
        return DescribedCluster(*self._running.nodes())

    def close(self) -> None:
        """Close every connection. Can be repeated."""
        self._running.close()


def connect(
    bootstrap_servers: str | Iterable[str] | None = None,
    config: Mapping[str, object] | None = None,
    /,
    *,
    timeout: float = 10.0,
    client_id: str = CLIENT_ID,
    **more: object,
) -> Cluster:
    """Connect to a cluster: `with txn.admin.connect("127.0.0.1:9092") as cluster:`.

    Args:
        bootstrap_servers: HOST:PORT[,HOST:PORT…] of some brokers, or a list of them.
        config: Properties by Kafka's or librdkafka's names: `bootstrap.servers`,
            `security.protocol`, `sasl.*`, `ssl.*`. Those that tune a client have no effect.
        timeout: Seconds that a connect, and the wait for each answer, may take.
        client_id: The name that brokers note for the requests.
        more: Further properties, with `_` for `.`: `security_protocol="SASL_SSL"`.

    Raises:
        ConfigError: an address has another form, or a setting is unknown or does not fit.
        UnreachableError: none of the servers answers.
        RejectedError: the cluster does not let this client in.
    """
    properties = merged(config, more)
    given = [
        each for each in (bootstrap_servers, properties.pop(SERVERS, None)) if each is not None
    ]
    if len(given) != 1:
        raise ConfigError(
            f"give the servers once: connect('HOST:PORT') or the property {SERVERS}",
            property=SERVERS,
        )
    servers = servers_of(given[0])
    try:
        running = RunningCluster(
            servers,
            security=security_of(properties),
            timeout_s=timeout,
            advice=ADVICE,
            client_id=client_id,
        )
    except RetriableError as error:
        raise UnreachableError(str(error), reasons={servers: str(error)}) from error
    return Cluster(running)
