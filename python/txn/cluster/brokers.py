"""The brokers of a cluster, asked one request at a time.

librdkafka sends neither ListTransactions nor DescribeTransactions, DescribeProducers or
WriteTxnMarkers (KIP-664), and hides markers from its consumers. So these requests go through the
client in Rust that Spark uses too: it connects, agrees on versions, frames and waits. Requests are
encoded here, and answers decoded. A broker's answers are not trusted: any fault in one becomes
one error that names the broker.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from txn import _core
from txn.access.connection import authentication_error, client_security
from txn.errors import ConfigError, RejectedError, RetriableError, TxnError
from txn.security.client import PLAIN, SecuritySettings
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_response_schema
from txn.wire.messages import encode_request
from txn.wire.plain_bodies import decode_untrusted
from txn.wire.transaction_descriptions import EXPLAIN_CLIENT_ID

Fields = dict[str, Any]

OTHER_SOURCES: Final = (
    "Give --bootstrap the address of a broker that runs, or --data the data directory of a "
    "stopped one"
)


class Brokers:
    """The brokers of one cluster; connections open with the first request to each.

    Args:
        servers: HOST:PORT[,HOST:PORT…] of some brokers.
        security: The way in.
        timeout_s: Limit of a connect, and of the wait for each answer.
        advice: Ends the message about brokers that cannot be reached.

    Raises:
        ConfigError: `servers` has another form, or the files of `security` cannot be used.
    """

    def __init__(
        self,
        servers: str,
        *,
        security: SecuritySettings = PLAIN,
        timeout_s: float,
        advice: str = OTHER_SOURCES,
        client_id: str = EXPLAIN_CLIENT_ID,
    ) -> None:
        self._advice = advice
        timeout_ms = int(timeout_s * 1_000)
        way_in = client_security(security)
        try:
            self._client = _core.KafkaClient(
                servers, client_id=client_id, timeout_ms=timeout_ms, security=way_in
            )
        except ValueError as error:
            message = f"--bootstrap takes HOST:PORT[,HOST:PORT…], not {servers!r}"
            raise ConfigError(message) from error

    def close(self) -> None:
        """Close every connection."""
        self._client.close()

    def any(self) -> "RemoteBroker":
        """Find a broker that answers.

        Raises:
            RetriableError: none does.
            RejectedError: it lets this client not in.
        """
        try:
            return self.at(*self._client.any_node())
        except _core.KafkaError as error:
            raise authentication_error(error) or RetriableError(
                f"{error}. {self._advice}"
            ) from error

    def count_committed(self, topic: str, partition: int, start: int, end: int) -> int:
        """The records that a read_committed reader gets of `[start, end)`, by reading them.

        Raises:
            RetriableError: the leader does not answer.
            RejectedError: it refuses, or the records cannot be read.
        """
        return sum(self._committed_rows(topic, partition, start, end))

    def has_committed(self, topic: str, partition: int, start: int, end: int) -> bool:
        """Return True if a read_committed reader gets a record of `[start, end)`.

        It reads up to the first one. Raises as `count_committed`.
        """
        return any(self._committed_rows(topic, partition, start, end))

    def _committed_rows(self, topic: str, partition: int, start: int, end: int) -> Iterator[int]:
        """The numbers of committed records in the pieces of `[start, end)`."""
        try:
            fetch = self._client.fetch(
                topic, partition, start, end, include_keys=False, include_values=False
            )
            for columns in fetch:
                yield cast(int, columns["rows"])
        except _core.KafkaError as error:
            kind = RetriableError if error.args[2] else RejectedError
            raise authentication_error(error) or kind(str(error)) from error

    def at(self, host: str, port: int) -> "RemoteBroker":
        """The broker at an address; it is not asked anything yet."""
        return RemoteBroker(self._client, host, port, self._advice)


class RemoteBroker:
    """One broker of a cluster."""

    def __init__(self, client: _core.KafkaClient, host: str, port: int, advice: str) -> None:
        self._client = client
        self._advice = advice
        self._node = host, port
        self.address = f"{host}:{port}"

    def call(self, api_key: int, versions: range, fields: Fields) -> Any:
        """Send a request; return the answer, decoded.

        Args:
            api_key: Kafka's number of the API.
            versions: The versions that the caller understands. The broker's latest among them is
                used.
            fields: By the names of the protocol library; those a version lacks are left out.

        Raises:
            RejectedError: the broker has none of the versions, or its answer is unreadable.
            RetriableError: the broker does not answer, or the connection broke.
        """
        version, body = self.call_raw(api_key, versions, fields)
        with self.reading(api_key):
            return decode_untrusted(load_response_schema(api_key, version), body)

    @contextmanager
    def reading(self, api_key: int) -> Iterator[None]:
        """Context for reading an answer: turns any fault in it into RejectedError."""
        try:
            yield
        except TxnError:
            raise
        except Exception as error:
            raise RejectedError(
                f"the answer of the broker at {self.address} to request {api_key} cannot be read: "
                f"{error!r}. If it is Apache Kafka or txn, report that with its version",
                address=self.address,
            ) from error

    def call_raw(self, api_key: int, versions: range, fields: Fields) -> tuple[int, bytes]:
        """Send a request; return its version, and the answer's body as bytes."""
        version = self._version(api_key, versions)
        body = encode_request(api_key, version, fields)
        return version, self._send(api_key, version, body)

    def _version(self, api_key: int, versions: range) -> int:
        try:
            return self._client.version(self._node, api_key, (versions[0], versions[-1]))
        except _core.KafkaError as error:
            if error.args[1] == ErrorCode.UNSUPPORTED_VERSION:
                raise RejectedError(str(error), address=self.address) from error
            raise authentication_error(error) or RetriableError(
                f"{error}. {self._advice}", address=self.address
            ) from error
        except (OverflowError, ValueError) as error:  # a broker may name any host and port
            raise RetriableError(
                f"{self.address} is no address of a broker, though the cluster names it. Correct "
                "advertised.listeners of its brokers",
                address=self.address,
            ) from error

    def _send(self, api_key: int, version: int, body: bytes) -> bytes:
        try:
            return self._client.send(self._node, api_key, version, body)
        except _core.KafkaError as error:
            is_retriable = error.args[2]
            kind = RetriableError if is_retriable else RejectedError
            raise authentication_error(error) or kind(str(error), address=self.address) from error
