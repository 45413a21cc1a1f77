"""A broker inside this process: `txn.Broker`."""

import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from txn import _core
from txn.broker.apis.table import FETCH, PRODUCE, SERVED_BY_REACTORS
from txn.broker.node import Node
from txn.config import BrokerSettings
from txn.errors import BrokerFailedError, ConfigError, TxnError
from txn.logs import log
from txn.server.compaction import Compaction
from txn.server.control_loop import ControlLoop, ServerCatalog
from txn.server.lent_loop import LentLoop
from txn.server.scheduler import LoopScheduler
from txn.server.upkeep import Upkeep
from txn.storage.directory import DataDirectory
from txn.storage.native import NativeStorage


class AddressError(TxnError):
    """The broker cannot listen where it was told to."""


class Broker:
    """A Kafka broker in this process, with transactions.

    It listens from the moment it is made until `close`, which the end of a `with` block
    calls. Several may live in one process.

    Args:
        path: The data directory, made if need be; None for a temporary one, removed at the end.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.
        durability: "process", "commit" or "always" (promise P2). By default "commit" for a
            named directory and "process" for a temporary one.
        properties: Broker properties by Kafka's names, `{"num.partitions": 6}`.
        settings: The same with underscores for dots, `num_partitions=6`.

    Raises:
        ConfigError: a property is unknown or its value does not fit.
        DirectoryError: the directory is in use, not a data directory, or not readable.
        CorruptLogError: acknowledged data is damaged; the message names file and position.
        AddressError: the address is taken or not of this machine.

    Example:
        >>> with txn.Broker() as broker:
        ...     producer = txn.Producer(bootstrap_servers=broker.bootstrap_servers)
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        durability: str | None = None,
        properties: Mapping[str, object] | None = None,
        **settings: object,
    ) -> None:
        given = dict(properties or {})
        given |= {name.replace("_", "."): value for name, value in settings.items()}
        given.setdefault("durability", durability or ("process" if path is None else "commit"))
        self._settings = BrokerSettings(given)
        self._temporary = _temporary_directory() if path is None else None
        self._is_closed = False
        self._failure: BrokerFailedError | None = None
        self._when_failed: list[Callable[[], object]] = []
        try:
            self._start(self._temporary or Path(path or ""), host, port)
        except BaseException:
            self._remove_temporary()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """HOST:PORT, as clients take it; an IPv6 address is in brackets."""
        host, port = self._address
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    @property
    def path(self) -> Path:
        """The data directory."""
        return self._directory.path

    @property
    def failure(self) -> BrokerFailedError | None:
        """Why it serves nobody any more, if a bug ended that."""
        return self._failure

    def call_when_failed(self, call: Callable[[], object]) -> None:
        """Make a call, on any thread, when a bug ends the service; at once if one has."""
        self._when_failed.append(call)
        if self._failure is not None:
            call()

    def close(self) -> None:
        """Answer what is under way, close every log in order, and leave. Harmless when repeated.

        Raises:
            StorageError: a log could not be closed; the next start will check the directory.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._server.stop()
        for reactor in self._reactors:
            reactor.join()
        self._compaction.stop()
        self._control.stop()
        self._upkeep.stop()
        try:
            self._node.close()
            self._storage.write_recovery_points()
            self._storage.write_log_starts()
            if self._is_in_order:
                self._directory.mark_clean(self._node.broker_epoch)
        finally:
            self._directory.release()
            self._remove_temporary()
            log.info("broker.stopped", directory=str(self._directory.path))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self, path: Path, host: str, port: int) -> None:
        advertised = _advertised(self._settings["advertised.listeners"])
        self._directory = DataDirectory(
            path,
            node_id=self._settings.given.get("node.id"),
            is_temporary=self._temporary is not None,
        )
        loop = LentLoop()
        try:
            self._server = self._listen(host, port)
            self._address = self._server.address
            scheduler = LoopScheduler(loop)
            self._node = self._open_node(scheduler)
            self._node.transactions.call_when_recovered(self._note_boot)
        except BaseException:
            loop.close()
            self._directory.release()
            raise
        self._node.advertised = advertised or _reachable(*self._address)
        self._control = ControlLoop(loop, scheduler, self._server, self._node)
        self._reactors = [
            threading.Thread(target=self._run_reactor, args=(index,), name=f"txn-reactor-{index}")
            for index in range(self._settings["num.network.threads"])
        ]
        for thread in self._reactors:
            thread.daemon = True
            thread.start()
        self._control.start()
        self._upkeep = Upkeep(self._storage, self._settings)
        self._upkeep.start()
        self._compaction = Compaction(self._node, self._directory.path)
        self._compaction.start()
        log.info(
            "broker.started", address=self.bootstrap_servers, directory=str(self._directory.path)
        )

    def _note_boot(self) -> None:
        """End what a power failure left, unless a disk kept a partition from being looked at."""
        if not self._directory.power_failed or self._node.is_all_open:
            self._directory.note_boot()

    @property
    def _is_in_order(self) -> bool:
        """Whether the next start may believe all that is stored, or has to look again."""
        node = self._node
        return node.transactions.is_recovered and node.is_all_open and not node.has_damage

    def _run_reactor(self, index: int) -> None:
        """Serve connections. A bug that breaks this off ends the others too: half a broker, whose
        clients wait for answers that never come, is worse than none.
        """
        try:
            self._server.run_reactor(index)
        except OSError as error:
            self._failure = BrokerFailedError(
                f"a bug ended the broker's service: {error}. What it acknowledged is stored: "
                "start it again, and report this",
                reason=str(error),
            )
            log.error("broker.failed", reason=str(error))
            for call in self._when_failed:
                call()

    def _open_node(self, scheduler: LoopScheduler) -> Node:
        directory = self._directory
        self._storage = NativeStorage(
            directory.path,
            self._settings,
            was_clean=directory.was_clean,
            power_failed=directory.power_failed,
        )
        return Node(
            settings=self._settings,
            storage=self._storage,
            scheduler=scheduler,
            catalog=ServerCatalog(self._server),
            node_id=directory.node_id,
            cluster_id=directory.cluster_id,
            directory_id=directory.directory_id,
            power_failed=directory.power_failed,
        )

    def _listen(self, host: str, port: int) -> _core.Server:
        settings = self._settings
        try:
            return _core.Server(
                host,
                port,
                reactors=settings["num.network.threads"],
                max_request_bytes=settings["socket.request.max.bytes"],
                max_queued_bytes=settings["queued.max.request.bytes"],
                max_connections=settings["max.connections"],
                max_idle_ms=settings["connections.max.idle.ms"],
                sync_acks_all=settings["durability"] == "always",
                produce_versions=SERVED_BY_REACTORS[PRODUCE],
                fetch_versions=SERVED_BY_REACTORS[FETCH],
            )
        except (OSError, OverflowError) as error:
            raise AddressError(
                f"cannot listen on {host}:{port}: {error}. Stop whatever uses that address, or "
                "give another; port 0 takes a free one",
                host=host,
                port=port,
            ) from error

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            import shutil

            shutil.rmtree(self._temporary, ignore_errors=True)


def _temporary_directory() -> Path:
    import tempfile  # only here: a broker with a directory has no use for it

    return Path(tempfile.mkdtemp(prefix="txn-"))


def _advertised(text: str | None) -> tuple[str, int] | None:
    """Read advertised.listeners: one PLAINTEXT listener."""
    if text is None:
        return None
    found = re.fullmatch(r"PLAINTEXT://\[?([^\],/]+?)\]?:(\d{1,5})", text)
    if found is None:
        raise ConfigError(
            f"broker property advertised.listeners cannot be {text!r}: it takes one listener, "
            "PLAINTEXT://HOST:PORT",
            property="advertised.listeners",
        )
    return found[1], int(found[2])


def _reachable(host: str, port: int) -> tuple[str, int]:
    """What to tell clients when the broker listens on every address."""
    import socket

    return (socket.gethostname() if host in ("0.0.0.0", "::") else host), port
