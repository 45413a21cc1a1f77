"""All that runs of one broker: `Service` starts it in order and closes it in order.

A start that fails undoes each step it has made, so no socket, thread or lock stays. A start opens
the sockets before it touches a directory. Brokers left open are closed when the interpreter ends.
"""

import _thread
import atexit
import os
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from txn import _core, forks
from txn.broker.host import Durability
from txn.broker.lost_cache import LostCacheError
from txn.broker.metadata_log import NodeIdentity
from txn.broker.node import Node
from txn.config import BrokerSettings, split_address
from txn.errors import BrokerFailedError, DirectoryError, ForkedError, StorageError
from txn.logs import log
from txn.security.listeners import ListenerSpec, read_listeners
from txn.security.sessions import Listener
from txn.server.lifecycle import descriptors
from txn.server.lifecycle.background import Background
from txn.server.lifecycle.forked_child import close_shared
from txn.server.lifecycle.listening import bound_listener, host_and_port, listen
from txn.server.lifecycle.log_cleaner import LogCleaner
from txn.server.lifecycle.preload import Preload
from txn.server.loop.control_lock import ControlLockLoop
from txn.server.loop.control_loop import ControlLoop
from txn.server.loop.scheduler import SYNC_THREADS, LoopScheduler
from txn.server.loop.server_catalog import ServerCatalog
from txn.server.security.certificates import Certificates
from txn.server.settings.connection_limits import ConnectionLimits
from txn.storage.directory import DataDirectory
from txn.storage.native import NativeStorage

if TYPE_CHECKING:
    from txn.server.metrics.listener import MetricsListener
    from txn.server.security.logins import Logins


_open: set["Service"] = set()
"""Those to close when the interpreter ends."""


@atexit.register
def _close_open() -> None:
    """Close brokers left open; daemon threads still run now, so each can end in order."""
    for service in list(_open):
        with suppress(ResourceWarning):  # raised where warnings are errors
            warn_of_unclosed(service, None)
        service.close_or_log()


def warn_of_unclosed(service: "Service", source: object) -> None:
    """Warn, at the caller's caller, that a broker was left open."""
    warnings.warn(
        f"unclosed broker {service.description}: open it in a `with` block, or call close()",
        ResourceWarning,
        stacklevel=3,
        source=source,
    )


MakeScheduler = Callable[[ControlLockLoop, _core.Durability], LoopScheduler]


class Service:
    """All that runs of one broker: its threads, sockets and logs. `open` makes it."""

    def __init__(
        self, settings: BrokerSettings, root: Path, *, is_temporary: bool, scheduler: MakeScheduler
    ) -> None:
        """`root` is the data directory; a temporary one is removed at the end."""
        self._settings = settings
        self._root = root
        self._temporary = root if is_temporary else None
        self._make_scheduler = scheduler
        self.is_open = False
        self._forked_from: int | None = None
        self._closing = threading.RLock()
        self.failure: BrokerFailedError | None = None
        self._when_failed: list[Callable[[], object]] = []

    @classmethod
    def open(
        cls,
        settings: BrokerSettings,
        path: str | Path | None,
        host: str | None,
        port: int | None,
        users: Mapping[str, str] | None = None,
        *,
        scheduler: MakeScheduler = LoopScheduler,
    ) -> "Service":
        """Recover a data directory and serve it; `path` is None for a temporary one.

        `scheduler` makes the broker's clock and timers; that of `txn.testing` can be moved.

        Raises: as `Broker` does.
        """
        # A program may change its working directory, and the broker's may not change with it.
        root = _temporary_directory() if path is None else Path(path).absolute()
        service = cls(settings, root, is_temporary=path is None, scheduler=scheduler)
        forks.watch(service)
        try:
            specs = read_listeners(settings, host, port)
            service._start(specs, users or {})
        except BaseException:
            forks.forget(service)
            service._remove_temporary()
            raise
        service.is_open = True
        _open.add(service)
        return service

    @property
    def bootstrap_servers(self) -> str:
        """`Broker.bootstrap_servers`."""
        return next(iter(self.listeners.values()))

    @property
    def path(self) -> Path:
        """The data directory."""
        return self._directory.path

    @property
    def description(self) -> str:
        """The broker in messages: its address and directory."""
        return f"{self.bootstrap_servers} on {self.path}"

    @property
    def is_listening(self) -> bool:
        """True while every thread that serves connections runs."""
        return all(reactor.is_alive() for reactor in self._reactors)

    def require_this_process(self) -> None:
        """Raise ForkedError in a forked child."""
        if self._forked_from is not None:
            raise ForkedError(
                f"broker {self.description} runs in process {self._forked_from}, and process "
                f"{os.getpid()} is a fork of that one. Connect to its bootstrap_servers with "
                "clients opened here, or start a broker with another directory",
                pid=self._forked_from,
            )

    def call_when_failed(self, call: Callable[[], object]) -> None:
        """Do the work of `Broker.call_when_failed`."""
        self._when_failed.append(call)
        if self.failure is not None:
            call()

    def close(self) -> None:
        """Do the work of `Broker.close`; a second caller waits for the first."""
        if self._forked_from is not None:
            return
        with self._closing:
            if self.is_open:
                self.is_open = False
                self._close()

    def close_or_log(self) -> None:
        """Close, and log a failure."""
        try:
            self.close()
        except Exception:
            log.exception("broker.not_closed", directory=str(self.path))

    def close_aside(self) -> None:
        """Close on a thread of its own: a collection may come at any line of any thread, with locks
        held that closing needs. No lock is taken here, hence not `threading.Thread`.
        """
        _thread.start_new_thread(self.close_or_log, ())

    def _abandon(self, parent: int) -> None:
        """Leave a forked child: close the sockets and files it shares, and nothing else.

        Closed here, a socket or file stays as it is in the parent. Kept open, the lock and the
        port would outlive the parent, and clients wait at connections that no process serves.
        """
        self._forked_from = parent
        self.is_open = False
        _open.discard(self)
        addresses: set[tuple[str, int]] = set()
        if (server := getattr(self, "_server", None)) is not None:  # it may be starting
            addresses |= set(server.addresses)
        if (metrics := getattr(self, "metrics", None)) is not None:
            addresses.add(metrics.address)
        close_shared(addresses, os.path.realpath(self._root))

    def _close(self) -> None:
        if self.metrics is not None:
            self.metrics.stop()
        self.preload.stop()
        self._server.stop()
        for reactor in self._reactors:
            reactor.join()
        self.log_cleaner.stop()
        self._control.stop()
        self._background.stop()
        self._durability.stop()
        is_in_place = self.storage.is_in_place()
        try:
            if not is_in_place:  # the files at its path now are somebody else's
                self._fail_without_directory()
                if self._temporary is None:
                    raise StorageError(self._directory_moved_error().message)
            elif self._temporary is None:
                self._close_logs()
            else:
                self.node.discard()
        except OSError as error:
            raise StorageError(
                f"cannot note in {self.path} that the broker stopped: {error}. Nothing is lost; "
                "the next start checks every log"
            ) from error
        finally:
            self._directory.release()
            if is_in_place:
                self._remove_temporary()
            _open.discard(self)
            forks.forget(self)
            self._release()
            log.info("broker.stopped", directory=str(self.path))

    def _release(self) -> None:
        """Free the server and the durability service, with their descriptors and threads.

        The node is in reference cycles and holds both. It stays until a collection.
        """
        self._catalog.close()
        self.storage.upkeep.release()
        del self._server, self._durability, self._control, self.logins

    def _close_logs(self) -> None:
        self.node.close()
        self.storage.upkeep.write_recovery_points()
        self.storage.upkeep.write_log_starts()
        if self._is_in_order:
            self._directory.mark_clean(self.node.broker_epoch)

    def _start(self, specs: Sequence[ListenerSpec], users: Mapping[str, str]) -> None:
        self.shares = descriptors.claim(
            self._settings["max.connections"],
            is_requested="max.connections" in self._settings.given,
        )
        _core.set_open_files_max(min(self.shares.files, descriptors.FILES_OF_EMBEDDED))
        self.certificates = Certificates.load(self._settings, specs)
        limits = ConnectionLimits.load(self._settings, specs)
        with ExitStack() as undo:
            # First of all: where a port is taken, no directory is made and none touched.
            with forks.one_step():
                self.metrics = self._listen_for_metrics()
            if self.metrics is not None:
                from txn.server.metrics.health import HealthProbes

                probes = HealthProbes(self)
                undo.callback(self.metrics.stop)
                self.metrics.start(probes)
            self._durability = _core.Durability(SYNC_THREADS)
            undo.callback(self._durability.stop)
            with forks.one_step():
                self._server = listen(
                    specs,
                    self._settings,
                    self.certificates,
                    self._durability,
                    max_connections=self.shares.connections,
                )
            undo.callback(self._server.stop)
            addresses = self._server.addresses
            listeners = [
                bound_listener(spec, at) for spec, at in zip(specs, addresses, strict=True)
            ]
            self.listeners = {
                spec.name: host_and_port((spec.host, address[1]))
                if self._settings["listeners"]
                else host_and_port(address)
                for spec, address in zip(specs, addresses, strict=True)
            }
            self._directory = DataDirectory.open(
                self._root,
                node_id=self._settings.given.get("node.id"),
                durability=self._settings["durability"],
                is_temporary=self._temporary is not None,
            )
            undo.callback(self._directory.release)
            loop = ControlLockLoop()
            undo.callback(loop.close)
            scheduler = self._make_scheduler(loop, self._durability)
            self.node = self._open_node(scheduler)
            advertised = [listener.advertised for listener in listeners]
            self._server.advertise(self.node.node_id, advertised)
            if self._directory.was_left_by_kafka:
                self.storage.upkeep.sync_all_and_write_checkpoints()
            elif self._directory.power_failed:
                self.storage.upkeep.write_checkpoints()
            elif self._may_show_unsynced_records:
                self.storage.upkeep.sync_all_and_write_checkpoints()
            self.logins = self._logins_of(listeners, scheduler)
            limits.apply(self._server)
            self._settings.when_changed(lambda: limits.apply(self._server))
            self.node.certificates = self.certificates
            self.certificates.check()  # altered settings count from here on
            self._settings.when_changed(self.certificates.check)
            if users:
                from txn.broker.users import ensure_users

                ensure_users(self.node.controller, users)
            self.node.transactions.call_when_recovered(self._note_boot)
            undo.pop_all()
        self._control = ControlLoop(
            loop,
            scheduler,
            self._server,
            self.node,
            listeners,
            self.logins,
            bounds_answers=self._settings["queued.max.request.bytes"] > 0,
        )
        self._reactors = [
            threading.Thread(target=self.run_reactor, args=(index,), name=f"txn-reactor-{index}")
            for index in range(self._settings["num.network.threads"])
        ]
        for thread in self._reactors:
            thread.daemon = True
            thread.start()
        self._control.start()
        self._background = Background(
            self.storage, self._settings, self.certificates, self._fail_without_directory
        )
        self._background.start()
        self.log_cleaner = LogCleaner(self.node, self.storage)
        self.log_cleaner.start()
        self.preload = Preload(self._control.table)
        if self.metrics is not None:
            from txn.server.metrics.scrape import Scrape, exposition

            probes.watch(loop.call_soon_threadsafe)
            names = [listener.name for listener in listeners]
            scrape = Scrape(self._server, self.node, names, self.logins)
            self.metrics.serve_metrics(exposition(scrape))
        log.info(
            "broker.started",
            address=self.bootstrap_servers,
            directory=str(self._directory.path),
            last_stop=self._directory.last_stop,
            open_transactions=self.node.transactions.open_count,
        )

    def _note_boot(self) -> None:
        """Note that a power failure is over, unless a partition could not be looked at."""
        replicas = self.node.replicas
        is_seen_whole = replicas.is_all_open and not replicas.has_damage
        if not self._directory.power_failed or is_seen_whole:
            self._directory.note_boot()
        if replicas.is_all_open:
            self.storage.past.forget_losses()

    @property
    def _may_show_unsynced_records(self) -> bool:
        """Return True if readers may see records that are not durable as this broker promises.

        The last broker promised less and was killed, or an operator accepted a loss, which ends
        transactions whose records no commit has synced.
        """
        if self.node.durability is Durability.PROCESS:
            return False
        was_less = self._directory.promised in ("", Durability.PROCESS.value)
        return was_less or bool(self.storage.given_up)

    @property
    def _is_in_order(self) -> bool:
        """True if the next start may trust everything that is stored; else it has to look again."""
        replicas = self.node.replicas
        is_recovered = self.node.transactions.is_recovered
        return is_recovered and replicas.is_all_open and not replicas.has_damage

    def run_reactor(self, index: int) -> None:
        """Serve connections. A bug that breaks this off ends the others too: half a broker, whose
        clients wait for answers that never come, is worse than none.
        """
        try:
            self._server.run_reactor(index)
        except OSError as error:
            message = (
                f"a bug ended the broker's service: {error}. What it acknowledged is stored: "
                "start it again, and report this"
            )
            self._fail(BrokerFailedError(message, reason=str(error)))

    def _fail_without_directory(self) -> None:
        """Stop serving: files that are made now are missing where the others are.

        Source: Apache Kafka, which stops once it has no log directory left.
        """
        self._fail(self._directory_moved_error())
        self._server.stop()

    def _directory_moved_error(self) -> BrokerFailedError:
        reason = f"{self.path} was moved away, removed or replaced under the broker"
        message = (
            f"{reason}, which serves nobody any more. Records that it acknowledged are in the "
            "directory that was there: put it back, or start a broker on its new path"
        )
        return BrokerFailedError(message, reason=reason)

    def _fail(self, failure: BrokerFailedError) -> None:
        if self.failure is not None:
            return
        self.failure = failure
        log.error("broker.failed", reason=failure.reason)
        for call in self._when_failed:
            call()

    def _open_node(self, scheduler: LoopScheduler) -> Node:
        try:
            return self._load_node(scheduler)
        except LostCacheError as error:
            log.warning(
                "storage.cache_lost",
                directory=str(self._directory.path),
                proof=error.proof,
                reason="this start counts as one after a power failure",
            )
        # The mark goes first: cut short, the next start goes by it, and judges every log anew.
        self._directory.note_lost_cache()
        self.storage.past.restore_refusals()
        return self._load_node(scheduler)

    def _load_node(self, scheduler: LoopScheduler) -> Node:
        directory = self._directory
        self.storage = NativeStorage.load(
            directory.path,
            self._settings,
            was_clean=directory.was_clean,
            power_failed=directory.power_failed,
            was_left_by_kafka=directory.was_left_by_kafka,
            durability=self._durability,
        )
        self._catalog = ServerCatalog(self._server)
        return Node.start(
            settings=self._settings,
            storage=self.storage,
            scheduler=scheduler,
            catalog=self._catalog,
            identity=NodeIdentity(directory.node_id, directory.cluster_id, directory.directory_id),
            power_failed=directory.power_failed,
        )

    def _logins_of(self, listeners: list[Listener], scheduler: LoopScheduler) -> "Logins | None":
        """The log-ins of SASL listeners; without one their modules are not loaded."""
        if not any(listener.is_sasl for listener in listeners):
            return None
        from txn.server.security.logins import Logins

        return Logins(self._server, self.node.image, self._settings, listeners, scheduler.now_ms)

    def _listen_for_metrics(self) -> "MetricsListener | None":
        address = self._settings["metrics.listener"]
        if address is None:
            return None
        from txn.server.metrics.listener import MetricsListener  # few brokers need it

        host, port = split_address(address)
        return MetricsListener(host, port, is_remote_allowed=self._settings["metrics.allow.remote"])

    def _remove_temporary(self) -> None:
        if self._temporary is not None:
            import shutil

            shutil.rmtree(self._temporary, ignore_errors=True)


def _temporary_directory() -> Path:
    import tempfile  # only here: a broker with a directory has no use for it

    try:
        return Path(tempfile.mkdtemp(prefix="txn-"))
    except OSError as error:
        raise DirectoryError(
            f"there is no place for a temporary data directory: {error.strerror or error}. Set "
            "TMPDIR to a directory that this user may write, or name a data directory"
        ) from error
