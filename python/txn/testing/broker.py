"""A broker for tests, with faults on request: `TestBroker`.

    client → proxy (`proxy.py`) → broker (`engine.py`): in this process, or one of its own
                                  ↑ its clock (`clock.py`)

Faults of connections and answers are the proxy's. Fencing and rebalances are requests of the kit,
as any client could send them. So the broker is the one that production runs, and knows of no test.
"""

import atexit
import itertools
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self, TypeVar

from txn.errors import ConfigError, RejectedError
from txn.hints import did_you_mean
from txn.testing.client import DEAD, PREPARING, KitClient, Record
from txn.testing.clock import Ahead
from txn.testing.engine import Embedded, Engine, OwnProcess
from txn.testing.errors import WaitError
from txn.testing.faults import Effect, Fault
from txn.testing.kept_files import KeptFiles, empty
from txn.testing.places import ScratchDirectory
from txn.testing.proxy import Proxy
from txn.testing.wire import api_key, error_code
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from txn.testing.registry import SchemaRegistry

WAIT_S: Final = 30.0
PAUSE_S: Final = 0.002
PAUSE_MAX_S: Final = 0.05

PROPERTIES: Final[Mapping[str, object]] = {
    "durability": "process",
    "group.min.session.timeout.ms": 1,
    "num.network.threads": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Settings of a test's broker that differ from `txn.Broker`'s."""

BY_THE_PROXY: Final = ("listeners", "advertised.listeners")

T = TypeVar("T")


class TestBroker:
    """A Kafka broker behind a proxy, with the faults that a test asks for.

    It serves from the moment it is made until `close`, which the end of a `with` block calls. Its
    address stays over restarts and resets. Several may live in one process.

    Args:
        own_process: Run the broker as a process of its own, which `kill` can end.
        properties: Broker properties by Kafka's names; `txn settings` lists them. The address is
            the proxy's, so `listeners` is not among them.
        settings: The same with underscores for dots, `num_partitions=6`.

    Raises:
        ConfigError: a property is unknown or its value does not fit.

    Example:
        >>> with TestBroker() as broker:
        ...     broker.create_topic("orders")
        ...     run_my_program(broker.bootstrap_servers)
        ...     assert [r.value for r in broker.records("orders")] == [b"7 apples"]
    """

    __test__ = False  # pytest takes classes of such names for tests

    def __init__(
        self,
        *,
        own_process: bool = False,
        properties: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        given = dict(properties or {})
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        self._begin(own_process, {**PROPERTIES, **given}, None)

    def _begin(
        self, own_process: bool, properties: Mapping[str, object], snapshot: "Snapshot | None"
    ) -> None:
        for name in BY_THE_PROXY:
            if name in properties:
                raise ConfigError(
                    f"a test's broker takes no {name}: its clients connect to a proxy on loopback. "
                    "For listeners of your own open a txn.Broker",
                    property=name,
                )
        self._engine: Engine
        self._own_process = own_process
        self._properties = properties
        self._ahead = Ahead(0 if snapshot is None else snapshot.ahead_ms)
        self._is_open = False
        self._topic_numbers = itertools.count(1)
        self._place = ScratchDirectory(in_memory=True)
        try:
            if snapshot is not None:
                snapshot.files.put_into(self._place.path)
            kind = OwnProcess if own_process else Embedded
            engine = self._engine = kind(properties, self._ahead)
            self._proxy = Proxy()
            try:
                self._start()
            except BaseException:
                self._proxy.close()
                raise
        except BaseException:
            self._place.close()
            raise
        self._is_open = True
        _open.add(self)
        self._kit = KitClient(self.bootstrap_servers, lambda: engine.port)
        self._registries: weakref.WeakSet[SchemaRegistry] = weakref.WeakSet()
        self.clock = Clock(self)

    # ------------------------------------------------------------ life

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT for clients; a forked child may read it too."""
        return f"127.0.0.1:{self._proxy.port}"

    @property
    def proxy(self) -> Proxy:
        """The proxy, for tools that watch its requests."""
        return self._proxy

    @property
    def is_open(self) -> bool:
        """False after `close`."""
        return self._is_open

    @property
    def is_running(self) -> bool:
        """False between `kill` and `restart`, and after `close`."""
        return self._engine.is_running

    def close(self) -> None:
        """Stop, and remove the data. Harmless when repeated, and in a forked child."""
        if not self._is_open or self._proxy.is_forked:
            return
        self._is_open = False
        _open.discard(self)
        for registry in list(self._registries):
            registry.close()
        self._kit.close()
        self._proxy.close()
        try:
            self._engine.stop()
        finally:
            self._place.close()

    def restart(self) -> None:
        """Stop the broker in order, unless it was killed, and start it again on its data.

        Clients lose their connections, and find it again at the same address.
        """
        self._require_open()
        with self._stopped():
            pass

    def kill(self) -> None:
        """End the broker's process by SIGKILL; `restart` starts the next one.

        Raises:
            RejectedError: it runs in the process of the test; see `own_process`.
        """
        self._require_open()
        with self._kit.resting():
            self._engine.kill()
            self._proxy.disconnect()

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TestBroker {self.bootstrap_servers}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a TestBroker cannot be pickled: it runs in the process that made it. Give other "
            "processes its bootstrap_servers"
        )

    def __del__(self) -> None:
        if getattr(self, "_is_open", False) and not self._proxy.is_forked:
            try:
                _warn_of_unclosed(self)
            finally:
                # Closing waits for threads, and a collection may come on one of them.
                threading.Thread(target=self.close).start()

    # ------------------------------------------------------------ topics and records

    def create_topic(self, name: str | None = None, partitions: int = 1, **config: object) -> str:
        """Create a topic and return its name; without one it gets a new one.

        Args:
            name: The name.
            partitions: Number of partitions.
            config: Topic settings with underscores for dots, `cleanup_policy="compact"`.

        Raises:
            RejectedError: it exists, or a setting does not fit.
        """
        kit = self._client()
        if name is None:
            # A branch has topics that another broker numbered; tests give such names themselves.
            known = kit.topics()
            names = (f"topic-{number}" for number in self._topic_numbers)
            name = next(each for each in names if each not in known)
        settings = {key.replace("_", "."): _text(value) for key, value in config.items()}
        kit.create_topic(name, partitions, settings)
        return name

    def topics(self) -> list[str]:
        """The names of the topics, without internal ones."""
        return self._client().topics()

    def produce(
        self,
        topic: str,
        *records: "bytes | str | tuple[bytes | str | None, bytes | str | None]",
        partition: int | None = None,
        aborted: bool = False,
    ) -> None:
        """Append records, each a value or a (key, value), without a transaction.

        Args:
            topic: The topic.
            records: Values, or pairs of key and value; text is encoded as UTF-8.
            partition: The partition; None: by the hash of the key, as Java's producer does.
            aborted: Append them in a transaction, and abort it: read_committed readers never get
                them.

        Raises:
            RejectedError: there is no such topic or partition, or the broker refuses.
        """
        self._client().write(
            topic, [_key_and_value(each) for each in records], partition, aborted=aborted
        )

    def records(self, topic: str, *, isolation: str = "read_committed") -> list[Record]:
        """The records of a topic that a reader gets now, by partition, then by offset.

        Raises:
            RejectedError: there is no such topic, or no such isolation.
        """
        return self._client().read(topic, isolation=isolation)

    def wait_for_records(
        self, topic: str, count: int, *, isolation: str = "read_committed", timeout: float = WAIT_S
    ) -> list[Record]:
        """Wait until a topic has at least `count` records for a reader, and return them.

        Raises:
            WaitError: they did not come within `timeout` seconds; the message has their number.
            RejectedError: there is no such topic.
        """
        found: list[Record] = []

        def is_there() -> bool:
            found[:] = self.records(topic, isolation=isolation)
            return len(found) >= count

        _wait(
            is_there,
            timeout,
            lambda: (
                f"topic {topic!r} has {len(found)} of {count} records for {isolation} readers "
                f"after {timeout:g} s{self._describe_open_transactions()}"
            ),
        )
        return found

    def schema_registry(self, *, user_info: str | None = None) -> "SchemaRegistry":
        """Open a schema registry on this broker: a `txn.testing.SchemaRegistry`.

        It keeps its schemas in the topic `_schemas`, and closes with the broker. Another registry
        on the same broker has the same schemas.

        Args:
            user_info: "name:password" that clients have to give as `basic.auth.user.info`.

        Raises:
            RejectedError: `user_info` has another form.
        """
        from txn.testing.registry import SchemaRegistry

        registry = SchemaRegistry(self._client(), user_info)
        self._registries.add(registry)
        return registry

    def committed(self, group: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group, by (topic, partition). Empty for an unknown group."""
        return self._client().committed(group)

    def groups(self) -> list[str]:
        """The ids of the consumer groups."""
        return self._client().groups()

    def members(self, group: str) -> list[str]:
        """The ids of a group's members; empty for an unknown group."""
        return list(self._client().group(group).members)

    def wait_until_consumed(
        self, group: str, topics: Iterable[str] | str | None = None, *, timeout: float = WAIT_S
    ) -> None:
        """Wait until a group has committed offsets behind all records for read_committed readers.

        Markers of transactions do not count: a group that has read every record is done.

        Args:
            group: The group.
            topics: Its topics. None means all topics for which it has offsets, or to which its
                members subscribe.
            timeout: Limit in seconds.

        Raises:
            WaitError: records are left; the message names partitions, offsets and the lag.
            RejectedError: one of `topics` is not there.
        """
        self._client()
        named = [topics] if isinstance(topics, str) else None if topics is None else list(topics)
        left: list[str] = []

        def is_consumed() -> bool:
            found = self.unconsumed(group, named)
            left[:] = ["it is not known"] if found is None else found
            return not left

        _wait(
            is_consumed,
            timeout,
            lambda: (
                f"group {group!r} has not consumed everything after {timeout:g} s: "
                f"{'; '.join(left)}{did_you_mean(group, self._kit.groups())}"
            ),
        )

    def unconsumed(self, group: str, topics: Iterable[str] | None = None) -> list[str] | None:
        """The partitions with committed records that a group has not committed offsets behind.

        Returns:
            One text per partition with its lag; None where no member and no offset is known.
        """
        kit = self._client()
        committed = kit.committed(group)
        if topics is None:
            described = kit.group(group)
            known = {topic for topic, _ in committed} | described.topics
            if not known and described.state == DEAD:
                return None
            topics = sorted(known & set(kit.topics()))
            if not topics:
                return ["it has neither offsets nor subscribed topics"]
        left = []
        for topic in topics:
            starts = {  # the log's start may lie behind the group's offset: records are deleted
                number: max(start, committed.get((topic, number), 0))
                for number, start in enumerate(kit.starts(topic))
            }
            ends = kit.ends(topic, isolation="read_uncommitted")
            beyond = {n: end for n, end in enumerate(ends) if starts[n] > end}
            left += [
                f"{topic}-{number} ends at offset {end}, below offset {starts.pop(number)}"
                for number, end in beyond.items()
            ]
            lag: dict[int, int] = {}
            for record in kit.read(topic, starts=starts):
                lag[record.partition] = lag.get(record.partition, 0) + 1
            left += [
                f"{topic}-{number} lags by {behind} from offset {starts[number]}"
                for number, behind in lag.items()
            ]
        return left

    def transactions(self) -> dict[str, str]:
        """The state of each transactional id, `Ongoing` or `CompleteCommit`."""
        return self._client().transactions()

    # ------------------------------------------------------------ snapshots

    def snapshot(self) -> "Snapshot":
        """Keep topics, records, groups and transactions as they are now.

        The broker stops and starts for it: clients lose their connections.
        """
        self._require_open()
        with self._stopped():
            return Snapshot(self._place.path, self._ahead.ms, self._properties, self._own_process)

    def reset(self, snapshot: "Snapshot | None" = None) -> None:
        """Return to a snapshot, or to an empty broker, at the same address.

        Open clients anew: producers of before have sequences that the broker has not seen.
        """
        self._require_open()
        files = None if snapshot is None else snapshot.files
        with self._stopped(heals=True):
            empty(self._place.path)
            if files is not None:
                files.put_into(self._place.path)
            self._ahead.ms = 0 if snapshot is None else snapshot.ahead_ms

    # ------------------------------------------------------------ faults

    def pause(self) -> None:
        """Block all requests and answers until `resume`; connections stay open."""
        self._require_open()
        self._proxy.pause()

    def resume(self) -> None:
        """End a `pause`."""
        self._require_open()
        self._proxy.resume()

    def delay(self, seconds: float) -> None:
        """Delay every request and every answer; 0 ends it. Raises RejectedError: below 0."""
        self._require_open()
        if not 0 <= seconds < float("inf"):
            raise RejectedError(f"a delay is 0 seconds or more, not {seconds!r}")
        self._proxy.delay(seconds)

    def cut(self, client_id: str | None = None) -> int:
        """Cut the clients' connections, or those of one `client.id`; return their number.

        Raises:
            RejectedError: no client is connected.
        """
        self._require_open()
        count = self._proxy.cut(client_id)
        if not count:
            of_id = "" if client_id is None else f" with client.id {client_id!r}"
            raise RejectedError(
                f"no client{of_id} is connected, so no connection was cut. Wait for its first "
                "request, or hold() it"
            )
        return count

    def lose_request(self, api: str, number: int = 1) -> Fault:
        """Cut the connection of the next request of an API; the broker does not get it."""
        return self._fault(Effect.LOSE_REQUEST, api, number)

    def lose_answer(self, api: str, number: int = 1) -> Fault:
        """Cut a connection instead of passing the next answer of an API on: the work is done.

        Args:
            api: Kafka's name of the API, `EndTxn`.
            number: 1 for the next one, 2 for the one behind it.

        Raises:
            RejectedError: there is no such API.
        """
        return self._fault(Effect.LOSE_ANSWER, api, number)

    def hold(self, api: str, number: int = 1) -> Fault:
        """Hold the next request of an API before the broker gets it, until `Fault.release`."""
        return self._fault(Effect.HOLD_REQUEST, api, number)

    def hold_answer(self, api: str, number: int = 1) -> Fault:
        """Hold the next answer of an API: the broker has done its work, the client waits."""
        return self._fault(Effect.HOLD_ANSWER, api, number)

    def refuse_next_append(
        self, topic: str | None = None, *, error: str = "INVALID_RECORD"
    ) -> Fault:
        """Refuse the next Produce, or the next one to a topic.

        Args:
            topic: The topic.
            error: Kafka's name of the error. A client tries again after a retriable one, such as
                NOT_ENOUGH_REPLICAS.

        Raises:
            RejectedError: there is no such topic or error.
        """
        code = error_code(error)
        if topic is not None:
            self._client().partition_count(topic)
        return self._fault(Effect.REFUSE, "Produce", 1, topic, code)

    def fence(self, transactional_id: str) -> None:
        """Take over a transactional id, as another instance of its producer does.

        Raises:
            RejectedError: no producer has it.
        """
        self._client().fence(transactional_id)

    def rebalance(self, group: str) -> int:
        """Remove every member from a group, so that they join again; return their number.

        Members lose their partitions at once, and notice it at their next heartbeat or commit.

        Raises:
            RejectedError: the group has no members.
        """
        return self._client().remove_members(group)

    def heal(self) -> None:
        """End pauses and delays, release held requests, drop faults that did not happen."""
        self._require_open()
        self._proxy.heal()

    def _fault(
        self,
        effect: Effect,
        api: str,
        number: int,
        topic: str | None = None,
        code: ErrorCode = ErrorCode.NONE,
    ) -> Fault:
        self._require_open()
        key: ApiKey = api_key(api)
        if number < 1:
            raise RejectedError(f"number is 1 for the next {api}, not {number}")
        fault = Fault(effect, key, number=number, topic=topic, code=code)
        self._proxy.add(fault)
        return fault

    # ------------------------------------------------------------ below

    def _start(self) -> None:
        self._engine.start(self._place.path, self._proxy.port)
        self._proxy.connect_to(self._engine.port)

    @contextmanager
    def _stopped(self, *, heals: bool = False) -> Iterator[None]:
        """Stop the broker for a block, and end its faults if asked for.

        Other threads' calls of the kit wait until the end of the block.
        """
        with self._kit.resting():  # its writers know producer ids that a reset gives out again
            self._proxy.disconnect(heals=heals)
            if self._engine.is_running:
                self._engine.stop()
            try:
                yield
            finally:
                self._start()
                for registry in list(self._registries):
                    registry.forget()  # a reset has another topic

    def _advance(self, by_ms: int) -> None:
        kit = self._client()
        self._engine.advance(by_ms)
        # An expired transaction aborts now; readers see its end once the markers are written.
        _wait(
            lambda: not kit.transactions(PREPARING),
            WAIT_S,
            lambda: f"expired transactions did not end: {kit.transactions(PREPARING)}",
        )

    def _describe_open_transactions(self) -> str:
        ongoing = [id for id, state in self._kit.transactions().items() if state == "Ongoing"]
        if not ongoing:
            return ""
        return f". Open transactions: {', '.join(ongoing)}; clock.advance() expires them"

    def _client(self) -> KitClient:
        self._require_open()
        if not self._engine.is_running:
            raise RejectedError(f"{self!r} was killed; call restart() first")
        return self._kit

    def _require_open(self) -> None:
        self._proxy.require_this_process()
        if not self._is_open:
            raise RejectedError(f"{self!r} is closed; open another one")


_open: weakref.WeakSet[TestBroker] = weakref.WeakSet()
"""Those to close when the interpreter ends."""


@atexit.register
def _close_open() -> None:
    """Close brokers left open before `txn.server` does, because their data goes with them."""
    for broker in list(_open):
        if not broker.proxy.is_forked:
            with suppress(ResourceWarning):  # raised where warnings are errors
                _warn_of_unclosed(broker)
            broker.close()


def _warn_of_unclosed(broker: TestBroker) -> None:
    warnings.warn(
        f"unclosed {broker!r}: open it in a `with` block, or call close()",
        ResourceWarning,
        stacklevel=3,
        source=broker,
    )


class Clock:
    """The clock of a test's broker."""

    def __init__(self, broker: TestBroker) -> None:
        self._broker = weakref.ref(broker)

    def advance(self, seconds: float) -> None:
        """Advance the broker's clock at once: transactions, sessions and offsets expire.

        A consumer with a shorter session has sent no heartbeat in that time. So it loses its
        membership and joins again.

        Raises:
            RejectedError: `seconds` is not above 0.
        """
        broker = self._broker()
        assert broker is not None, "its broker holds it"
        if not 0 < seconds < float("inf"):
            raise RejectedError(f"a clock moves forward: advance({seconds!r}) does not")
        broker._advance(round(seconds * 1000))


class Snapshot:
    """The state of a broker at a moment; brokers begin with it, and go back to it."""

    def __init__(
        self, source: Path, ahead_ms: int, properties: Mapping[str, object], own_process: bool
    ) -> None:
        self.ahead_ms = ahead_ms
        self._properties = properties
        self._own_process = own_process
        self._place = ScratchDirectory(in_memory=True)
        self._files = KeptFiles(source, self._place.path)

    def branch(self) -> TestBroker:
        """Open another broker that begins with this state."""
        broker = TestBroker.__new__(TestBroker)
        broker._begin(self._own_process, self._properties, self)
        return broker

    def close(self) -> None:
        """Remove it. Harmless when repeated."""
        self._place.close()

    @property
    def files(self) -> KeptFiles:
        """The files of the broker. Raises RejectedError: it is closed."""
        if not self._place.is_open:
            raise RejectedError("this snapshot is closed; take another one")
        return self._files

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _key_and_value(record: object) -> tuple[bytes | None, bytes | None]:
    pair = record if isinstance(record, tuple) else (None, record)
    if len(pair) != 2 or not all(isinstance(each, bytes | str | None) for each in pair):
        raise RejectedError(f"a record is bytes, text, or a tuple of key and value, not {record!r}")
    key, value = (each.encode() if isinstance(each, str) else each for each in pair)
    return key, value


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _wait(is_done: Callable[[], bool], timeout: float, message: Callable[[], str]) -> None:
    ends_s = time.monotonic() + timeout
    pause_s = PAUSE_S
    while not is_done():
        if time.monotonic() > ends_s:
            raise WaitError(message())
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, PAUSE_MAX_S)
