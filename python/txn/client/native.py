"""The native engine: txn's own client in Rust behind the seam of `engine.py`.

A call hands over to the machines of `rust/txn-client/src/engine`, and waits for their outcome
without the interpreter. One I/O thread serves all native clients of a process; a forked child
begins its own. Errors become librdkafka's `KafkaError` with its marks, so `failures.py` reads both.
"""

import inspect
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from txn import _core, forks
from txn.access.connection import AUTHENTICATION_CODES, client_security
from txn.access.librdkafka import TokenCallback
from txn.client.bounded_call import ends_in_time
from txn.client.delivery import Delivery
from txn.client.engine import Append
from txn.client.group_metadata import read_place
from txn.client.native_settings import OR_LIBRDKAFKA, PRODUCER, is_true
from txn.client.reach import TOO_OLD, addresses_in
from txn.client.reports import Reports
from txn.errors import ConfigError
from txn.security.client_names import READ
from txn.security.client_reader import read_security

if TYPE_CHECKING:
    from txn.client.arrow import Rows

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")

CLOSED_PAUSE_S: Final = 0.1
"""Pause before a call is told that it timed out because another thread has closed the producer: its
caller asks again until its own deadline."""

_unsent: "Final[set[NativeProducer]]" = set()
"""Producers without transactions that may hold records: so these are sent although the program has
dropped its producer. See `unclosed.py`."""

_threads: Final[dict[int, _core.ClientThread]] = {}
"""The I/O thread of each process that this one descends from, and its own, by process id."""


def client_thread() -> _core.ClientThread:
    """Return the I/O thread of this process; the first call starts it."""
    pid = os.getpid()
    if pid not in _threads:
        _threads[pid] = _core.ClientThread()
    return _threads[pid]


def refusals_of(core: "_core.NativeProducer | _core.NativeConsumer") -> list[str]:
    """Return why nodes do not let a client in that has never connected, by address.

    A broker that is too old for the requests of this engine is one of them. A listener of another
    `security.protocol` is not: `Reach` finds that by itself, and raises UnreachableError as for
    librdkafka.
    """
    if core.has_connected():
        last = core.last_error()
        return [last] if last is not None and TOO_OLD in last else []
    return [
        f"{address}: {message}"
        for address, code, is_retriable, is_other_protocol, message in core.connect_errors()
        if not is_retriable and code in AUTHENTICATION_CODES and not is_other_protocol
    ]


class NativeProducer:
    """A producer on the native engine.

    Args:
        settings: Its configuration, by Kafka's names; `require_native_producer` has passed it.
        whose: Which producer, as a message begins.
        reports: The deliveries of its records.
        on_failure: Called with (topic, partition, error, bytes, delivery) of each record that is
            given up.
        on_refusal: Called with the reason if a node does not let the client in.

    Raises:
        ConfigError: the value of a setting does not fit.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        whose: str,
        *,
        reports: Reports,
        on_failure: Callable[[str, int, KafkaError, int, Delivery | None], None],
        on_refusal: Callable[[str], None],
    ) -> None:
        given = PRODUCER.by_first_names(settings)
        numbers = PRODUCER.numbers_of(given)
        codec = str(given.get("compression.type", "none"))
        if codec not in CODECS:
            raise ConfigError(
                f"compression.type={codec} is none of {', '.join(CODECS)}",
                property="compression.type",
            )
        name = given.get("transactional.id")
        try:
            self._core = _core.NativeProducer(
                client_thread(),
                servers_of(given),
                client_id=str(given.get("client.id", "txn")),
                security=security_of(settings, on_refusal),
                transactional_id=None if name is None else str(name),
                compression=codec,
                makes_topics=is_true(given.get("allow.auto.create.topics", True)),
                is_two_phase=given.get("transaction.two.phase.commit.enable") is True,
                **numbers,
            )
        except ValueError as error:
            raise ConfigError(f"{whose}: {error}") from error
        for other in list(_unsent):
            other._release_if_sent()
        self.append: Append | None = self._core.append
        self._whose = whose
        self._is_transactional = name is not None
        self._is_closed = False
        self._reports = reports
        self._handing_out = threading.RLock()
        self._on_failure = on_failure
        self._on_refusal = on_refusal
        forks.watch(self)

    def _abandon(self, parent: int) -> None:
        """Let go of it: its `Producer` refuses every use in a forked child; see `txn.forks`."""
        _unsent.discard(self)

    def init_transactions(self, timeout: float, /) -> None:
        """Take over the transactional id; as `ProducerEngine` tells, like all that follows."""
        self._core.init()
        is_settled = self._core.wait("settled", ms_of(timeout))
        self._report()
        if not is_settled:
            raise self._timed_out("the transactional id was not taken over")
        if self._core.kept() is None:
            self._require("ready")

    def begin_transaction(self) -> None:
        """Begin a transaction."""
        if not self._core.begin():
            self._refuse("a transaction is open already, or none can begin")

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
        """Take a record."""
        self._send(topic, value, key, headers, partition, timestamp, None)

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
        """Take a record, and report its end to the delivery."""
        self._send(topic, value, key, headers, partition, timestamp, delivery.number)

    def _send(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: Any,
        partition: int,
        timestamp: int,
        delivery: int | None,
    ) -> None:
        pairs = list(headers.items()) if isinstance(headers, dict) else headers
        refusal = self._core.send(
            topic,
            value,
            key,
            pairs,
            None if partition < 0 else partition,
            timestamp or None,
            delivery,
        )
        if refusal is None:
            self._hold()
            return
        if refusal == "full":
            raise BufferError("buffer.memory is used up")
        self._raise_refusal(refusal)

    def produce_rows(self, topic: str, rows: "Rows", first: int) -> int:
        """Take rows from `first` on; return the first that was not taken, as the queue is full."""
        row, refusal = self._core.send_rows(
            topic,
            first,
            rows.count,
            rows.key,
            rows.value,
            rows.headers,
            rows.partition,
            rows.timestamp_ms,
        )
        if row > first:
            self._hold()
        if refusal is not None and refusal != "full":
            self._raise_refusal(refusal)
        return row

    def _raise_refusal(self, refusal: str) -> NoReturn:
        if refusal == "too-large":
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
        if refusal == "closed":
            raise KafkaException(KafkaError(KafkaError._STATE, "the producer is closed"))
        self._report()
        if refusal == "fatal":
            self._refuse("the producer is finished")
        raise KafkaException(KafkaError(KafkaError._STATE, "no transaction is open"))

    @ends_in_time
    def send_offsets_to_transaction(
        self, offsets: list[TopicPartition], metadata: object, timeout: float, /
    ) -> None:
        """Send offsets with the open transaction."""
        group, generation, member, instance = read_place(metadata)
        places = [
            (o.topic, o.partition, o.offset, _leader_epoch(o), o.metadata)
            for o in offsets
            if o.offset >= 0
        ]
        if not places:
            return
        if not self._core.send_offsets(group, generation, member, instance, places):
            self._refuse("no transaction is open")
        if not self._core.wait("offsets", ms_of(timeout)):
            raise self._timed_out("the offsets were not accepted")
        self._report()
        self._require("open")

    def prepare_transaction(self) -> tuple[int, int]:
        """Prepare the open transaction; see `two_phase.py`."""
        prepared = self._core.prepare()
        if prepared is None:
            self._report()
            self._refuse(
                "it cannot be prepared: it is not open, or its cluster has gone back to version 1"
            )
        return prepared

    def kept_transaction(self) -> tuple[int, int] | None:
        """The transaction that was kept for this producer, until it ends."""
        return self._core.kept()

    def commit_transaction(self, timeout: float, /) -> None:
        """Commit, or go on with the commit."""
        self._end("commit", timeout)

    def abort_transaction(self, timeout: float, /) -> None:
        """Abort, or go on with the abort."""
        self._end("abort", timeout)

    def _end(self, what: str, timeout: float) -> None:
        # Asked again, as after a signal, this goes on with the one end, or finds it done.
        if not self._core.end(what == "commit"):
            self._refuse("no transaction is open")
        if not self._core.wait("settled", ms_of(timeout)):
            raise self._timed_out(f"the {what} is not done")
        self._report()
        if not self._core.has_ended(what == "commit"):
            self._require("ready")
        # Else a new epoch may have been refused: the next transaction's begin says so.

    def flush(self, timeout: float, /) -> int:
        """Wait until every record is stored or given up; return how many are neither."""
        self._core.flush()
        self._core.wait("stored", ms_of(timeout))
        self._report()
        kind, code, message = self._core.status()
        if kind == "failed":
            return 0  # what is left goes with the transaction
        if kind == "fatal":
            raise KafkaException(_error(code, message, fatal=True))
        return self._core.pending()

    def poll(self, timeout: float, /) -> int:
        """Report records that were given up; wait until there is room for more."""
        if timeout > 0:
            # Right after a record found no room, `room` may be there for a smaller one alone.
            self._core.wait("stored", 1)
            self._core.wait("room", ms_of(timeout))
        return self._report()

    def collect(self, timeout: float, /) -> int:
        """Wait for reports about deliveries, hand them out, and return how many there were."""
        if not self._core.wait("reports", ms_of(timeout)):
            return 0
        count = self._hand_out()
        self._release_if_sent()
        return count

    def purge(self) -> None:
        """Give up everything, and close the connections."""
        self._is_closed = True
        self._core.close()
        _unsent.discard(self)
        forks.forget(self)

    def __len__(self) -> int:
        is_failed = self._core.status()[0] == "failed"
        return 0 if is_failed else self._core.pending()  # see `flush`

    # ------------------------------------------------------------ inside

    def _report(self) -> int:
        """Report records that were given up, and a node that lets the client not in."""
        if self._reports.waiting:
            self._hand_out()
        failures = self._core.take_failures()
        self._release_if_sent()
        if failures:
            for topic, partition, count, size, code, is_retriable, message in failures:
                error = self._delivery_error(code, is_retriable, message)
                for _ in range(count):
                    self._on_failure(topic, partition, error, size, None)
        for refusal in refusals_of(self._core):
            self._on_refusal(refusal)
        return len(failures)

    def _hand_out(self) -> int:
        """End the deliveries that there are reports about.

        One thread at a time does so: reports of a partition come in their order. They are forgotten
        afterwards, so none is lost to a signal.
        """
        with self._handing_out:
            end, reports = self._core.reports()
            for number, topic, partition, offset, timestamp, size, failed in reports:
                delivery = self._reports.waiting.get(number)
                if failed is not None:
                    error = self._delivery_error(*failed)
                    self._on_failure(topic, partition, error, size, delivery)
                elif delivery is not None:
                    self._reports.stored(delivery, topic, partition, offset, timestamp)
            self._core.forget_reports(end)
        return len(reports)

    def _delivery_error(self, code: int, is_retriable: bool, message: str) -> KafkaError:
        kind, cause, _ = self._core.status()
        # As with librdkafka: of records that fell with their producer, the cause is told.
        is_purged = code == 0 or (kind == "fatal" and code == cause)
        number = KafkaError._PURGE_QUEUE if is_purged else code
        return KafkaError(number, message, retriable=is_retriable)

    def _hold(self) -> None:
        if not self._is_transactional:
            self._core.hold()
            _unsent.add(self)

    def _release_if_sent(self) -> None:
        if not self._is_transactional and self._core.release():
            _unsent.discard(self)
            if self._core.is_held():  # another thread has sent a record since
                _unsent.add(self)

    def _require(self, wanted: str) -> None:
        kind, code, message = self._core.status()
        if kind != wanted:
            self._raise(kind, code, message)

    def _refuse(self, why: str) -> NoReturn:
        kind, code, message = self._core.status()
        self._raise(kind, code, message or why)

    def _raise(self, kind: str, code: int, message: str) -> NoReturn:
        if kind == "failed":
            raise KafkaException(_error(code, message, txn_requires_abort=True))
        if kind == "fatal":
            raise KafkaException(_error(code, message, fatal=True))
        raise KafkaException(KafkaError(KafkaError._STATE, message))

    def _timed_out(self, what: str) -> KafkaException:
        if self._is_closed:
            time.sleep(CLOSED_PAUSE_S)
        last = self._core.last_error()
        text = what if last is None else f"{what}: {last}"
        return KafkaException(KafkaError(KafkaError._TIMED_OUT, text, retriable=True))


def _error(
    code: int, message: str, *, fatal: bool = False, txn_requires_abort: bool = False
) -> KafkaError:
    return KafkaError(code, message, fatal=fatal, txn_requires_abort=txn_requires_abort)


def _leader_epoch(offset: TopicPartition) -> int:
    return -1 if offset.leader_epoch is None else int(offset.leader_epoch)


def ms_of(seconds: float) -> int:
    """Return whole milliseconds, at least 0."""
    return max(0, int(seconds * 1000))


def servers_of(settings: Mapping[str, object]) -> str:
    """Return the bootstrap servers, each as host:port; librdkafka reads some without a port."""
    return ",".join(
        f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        for host, port in addresses_in(str(settings["bootstrap.servers"]))
    )


def security_of(
    settings: Mapping[str, object], refuse: Callable[[str], None]
) -> _core.ClientSecurity | None:
    """Return TLS and SASL of a client's settings; None if it has neither.

    Args:
        settings: By librdkafka's names.
        refuse: Called with the reason if `oauth_cb` returns what cannot be sent.

    Raises:
        ConfigError: the value of a setting does not fit.
    """
    about = {name: str(value) for name, value in settings.items() if name in READ}
    if "security.protocol" in about:
        about["security.protocol"] = about["security.protocol"].upper()
    call: Any = settings.get("oauth_cb")
    if call is None:
        return client_security(read_security(about))
    config = str(settings.get("sasl.oauthbearer.config", ""))

    def token() -> str:
        given = call(config)
        returned = dict(given[3]) if len(given) > 3 and given[3] else {}
        if not returned.items() <= sent.items():
            reason = (
                f"oauth_cb returns the SASL extensions {', '.join(sorted(returned))}, and the "
                "native engine sends those of sasl.oauthbearer.extensions alone. Set that to "
                f"NAME=VALUE,..., {OR_LIBRDKAFKA}"
            )
            refuse(reason)
            raise ConfigError(reason, property="sasl.oauthbearer.extensions")
        return str(given[0])

    security = read_security(about, call=token)
    sent = dict(security.extensions)
    origin = inspect.unwrap(call)
    if isinstance(origin, TokenCallback):  # its extensions are fixed: those of a JAAS line
        sent |= origin.extensions
    return client_security(replace(security, extensions=tuple(sent.items())))
