"""Reads the topic of a table: its committed records by partition, in order of offset."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, cast

from txn import _core
from txn.access.connection import authentication_error, client_security
from txn.errors import ConfigError, RejectedError, RetriableError, UnreachableError
from txn.security.client import SecuritySettings
from txn.wire.error_codes import ErrorCode

CLIENT_ID: Final = "txn-table"
EARLIEST, LATEST = -2, -1


class OutOfRangeError(Exception):
    """The log no longer has the offset that was asked for."""


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a partition begins, up to where it is decided, and where it ends (exclusive)."""

    start: int
    stable: int
    end: int


class Changelog:
    """The topic of a table; for one thread.

    Args:
        topic: The topic.
        servers: HOST:PORT[,HOST:PORT…] of some brokers.
        security: The way in.
        timeout_s: Seconds that a request may take, with its retries.

    Raises:
        UnreachableError: none of the servers answers.
        RejectedError: the cluster does not let this client in.
    """

    def __init__(
        self, topic: str, servers: str, security: SecuritySettings, timeout_s: float
    ) -> None:
        self.topic = topic
        self._client = _core.KafkaClient(
            servers,
            client_id=CLIENT_ID,
            timeout_ms=int(timeout_s * 1000),
            security=client_security(security),
        )
        try:
            self._client.any_node()
        except _core.KafkaError as error:
            self._client.close()
            raise authentication_error(error) or UnreachableError(
                f"{error}. Check bootstrap.servers, and that a broker runs there",
                reasons={servers: str(error)},
            ) from error

    def describe(self, topic: str | None = None) -> tuple[int, bytes | None]:
        """Return the number of partitions and the id of the table's topic, or of another one.

        Raises ConfigError: it does not exist.
        """
        name = topic or self.topic
        with self._asking(f"topic {name!r} cannot be looked at"):
            (found,) = self._client.describe_topics([name], is_patient=True)
        if found is None:
            raise ConfigError(
                f"there is no topic {name!r}. Create it, as with `txn topics create {name}` and "
                "for a table with `--config cleanup.policy=compact`"
            )
        return found

    def ends(self, partition: int) -> Ends:
        """Return the offsets of a partition. The end is asked for first, the stable offset last."""
        with self._asking(f"offsets of {self.topic}-{partition} are not known"):
            (end,) = self._client.list_offsets(
                self.topic, [partition], LATEST, read_committed=False
            )
            (start,) = self._client.list_offsets(self.topic, [partition], EARLIEST)
        return Ends(start, self.stable([partition])[0], end)

    def stable(self, partitions: list[int]) -> list[int]:
        """Return the last stable offset of each partition."""
        with self._asking(f"offsets of {self.topic!r} are not known"):
            return self._client.list_offsets(self.topic, partitions, LATEST)

    def read(
        self, partition: int, start: int, stable: int
    ) -> Iterator[tuple[dict[bytes, bytes | None], int]]:
        """Yield the committed records of `[start, stable)` in pieces.

        Yields:
            The last value of each key in the piece, and the offset behind the piece. A record
            without a key is passed over: a compacted topic has none.

        Raises:
            OutOfRangeError: the log begins behind `start`.
            RetriableError: the leader does not answer.
        """
        with self._asking(f"records of {self.topic}-{partition} cannot be read"):
            for columns in self._client.fetch(self.topic, partition, start, stable):
                yield _rows_of(columns), cast(int, columns["next_offset"])

    def close(self) -> None:
        """Close every connection. Can be repeated."""
        self._client.close()

    @contextmanager
    def _asking(self, refused: str) -> Iterator[None]:
        try:
            yield
        except _core.KafkaError as error:
            message, code, is_retriable = error.args
            if code == ErrorCode.OFFSET_OUT_OF_RANGE:
                raise OutOfRangeError(message) from error
            kind = RetriableError if is_retriable else RejectedError
            advice = "Try again in a moment" if is_retriable else "Its user needs Read on the topic"
            raise authentication_error(error) or kind(
                f"{refused}: {message}. {advice}", code=code, topic=self.topic
            ) from error


def _rows_of(columns: "_core.Columns") -> dict[bytes, bytes | None]:
    keys = _cells(columns, "key")
    values = _cells(columns, "value")
    return {key: value for key, value in zip(keys, values, strict=True) if key is not None}


def _cells(columns: "_core.Columns", name: str) -> Iterator[bytes | None]:
    """Return the cells of an Arrow column of bytes."""
    offsets = memoryview(cast(bytes, columns[f"{name}_offsets"])).cast("i")
    data = cast(bytes, columns[f"{name}_data"])
    validity = cast("bytes | None", columns[f"{name}_validity"])
    for row in range(cast(int, columns["rows"])):
        if validity is not None and not validity[row >> 3] >> (row & 7) & 1:
            yield None
        else:
            yield bytes(data[offsets[row] : offsets[row + 1]])
