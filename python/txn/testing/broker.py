"""A broker for tests, with faults on request: `TestBroker`.

    client → proxy (`proxy.py`) → broker (`engine.py`): in this process, or one of its own
                                  ↑ its clock (`clock.py`)

`TestBroker` has its life and its snapshots here; `broker_contents.py` has its topics, records and
groups, `broker_faults.py` its faults. Faults of connections and answers are the proxy's. Fencing
and rebalances are requests of the kit, as any client could send them. So the broker is the one that
production runs, and knows of no test.
"""

import atexit
import itertools
import threading
import warnings
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn, Self

from txn.errors import ConfigError, RejectedError
from txn.testing.broker_contents import BrokerContents
from txn.testing.broker_faults import BrokerFaults
from txn.testing.client import PREPARING, KitClient
from txn.testing.clock import Ahead
from txn.testing.engine import Embedded, OwnProcess
from txn.testing.kept_files import KeptFiles, empty
from txn.testing.open_broker import WAIT_S, wait_until
from txn.testing.places import ScratchDirectory
from txn.testing.proxy import Proxy

if TYPE_CHECKING:
    from txn.testing.registry import SchemaRegistry

PROPERTIES: Final[Mapping[str, object]] = {
    "durability": "process",
    "group.min.session.timeout.ms": 1,
    "num.network.threads": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
}
"""Settings of a test's broker that differ from `txn.Broker`'s."""

BY_THE_PROXY: Final = ("listeners", "advertised.listeners")


class TestBroker(BrokerContents, BrokerFaults):
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

    # ------------------------------------------------------------ inside

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
        wait_until(
            lambda: not kit.transactions(PREPARING),
            WAIT_S,
            lambda: f"expired transactions did not end: {kit.transactions(PREPARING)}",
        )


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
