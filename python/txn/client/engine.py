"""The seam between `txn.Producer` and the client library under it: what an engine gives.

`confluent_kafka.Producer` is one engine, `NativeProducer` (`native.py`) the other. Both report by
`KafkaException`, with the marks *fatal*, *requires abort* and *retriable* that `failures.py` reads.
A call that ends a transaction may be repeated after a time-out: it resumes the one end.
"""

from importlib import import_module
from types import ModuleType
from typing import Any, Final, Literal, Protocol

from confluent_kafka import TopicPartition

from txn.client.delivery import Delivery
from txn.errors import ConfigError

EngineName = Literal["confluent-kafka", "native"]

ENGINES: Final = ("confluent-kafka", "native")

DEFAULT_ENGINE: Final[EngineName] = "confluent-kafka"
"""The engine of every client that names none.

The native one becomes it once its figures are measured beside this one's on a quiet machine.
"""


class Append(Protocol):
    """Adds a record in one step, in which no other thread and no signal's handler runs.

    Arguments are those of `Transaction.produce`. It never raises. It returns True if it has added
    the record. Else it has done nothing, and `RecordQueue.add` adds the record or raises the
    reason. None asks that call to collect reports of delivery first.
    """

    def __call__(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: Any,
        partition: int | None,
        timestamp: int | None,
        /,
    ) -> bool | None:
        """Add a record, if its arguments are plain and there is room."""


class ProducerEngine(Protocol):
    """A producer as the blocks of `transaction.py` use it. Times are in seconds."""

    @property
    def append(self) -> Append | None:
        """The quickest way to add a record; None if the engine has only `produce`."""

    def init_transactions(self, timeout: float, /) -> None:
        """Take over the transactional id."""

    def begin_transaction(self) -> None:
        """Begin a transaction; raises the error of one that has failed."""

    def produce(
        self,
        topic: str,
        *,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: Any,
        partition: int,
        timestamp: int,
    ) -> None:
        """Take a record; partition -1: by the key; timestamp 0: now. BufferError: it is full."""

    def produce_tracked(
        self,
        topic: str,
        *,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: Any,
        partition: int,
        timestamp: int,
        delivery: Delivery,
    ) -> None:
        """Take a record as `produce` does, and report its end to the delivery."""

    def collect(self, timeout: float, /) -> int:
        """Wait for reports about deliveries, hand them out, and return how many there were."""

    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], metadata: Any, timeout: float, /
    ) -> None:
        """Send offsets with the open transaction; `metadata` is `consumer_group_metadata`'s."""

    def commit_transaction(self, timeout: float, /) -> None:
        """Commit, or go on with the commit."""

    def abort_transaction(self, timeout: float, /) -> None:
        """Abort, or go on with the abort."""

    def flush(self, timeout: float, /) -> int:
        """Wait until every record is stored or given up; return how many are neither."""

    def poll(self, timeout: float, /) -> int:
        """Report records that were given up; wait if there is nothing to report."""

    def purge(self) -> None:
        """Give up everything."""

    def __len__(self) -> int:
        """Number of records that are neither stored nor given up."""


def arrow_module(call: str) -> ModuleType:
    """Return `txn.client.arrow`, which needs pyarrow. Raises ConfigError."""
    try:
        return import_module("txn.client.arrow")
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{call} needs the package {error.name}: run `pip install '.[arrow]'` in the directory "
            "of txn, or use records one by one"
        ) from error


def engine_name(name: object) -> EngineName:
    """Return the engine of this name. Raises ConfigError."""
    for known in ENGINES:
        if name == known:
            return "native" if known == "native" else "confluent-kafka"
    raise ConfigError(
        f"engine={name!r} is none of {', '.join(map(repr, ENGINES))}", property="engine"
    )
