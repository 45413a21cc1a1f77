"""A broker as a process of its own: the program of `txn serve`."""

import gc
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Self

from txn import _core
from txn.config import split_address
from txn.errors import ConfigError
from txn.line_writer import LineWriter
from txn.logs import log, show_on_stderr
from txn.server.lifecycle.broker import Broker, service_of

if TYPE_CHECKING:
    from txn.server.settings.config_file import ConfigFile

DEFAULT_LISTEN = "127.0.0.1:9092"

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
RELOAD_SIGNAL = signal.SIGHUP
STOP = 0
"""Asks for the same from inside the process; no signal has this number."""

SWITCH_INTERVAL_S = 0.0001
"""Time that a busy Python thread keeps the interpreter from a waiting one. Measured: the default 5
ms shows as 5 ms in every answer that has to wait for it."""

PARENT_CHECK_S = 0.5

MANAGER_S = 1.0
"""Time that a service manager has to take a state."""

KEPT_BYTES = 8 << 20
"""Freed memory that a thread's heap may keep. By glibc's own measure it was up to 64 MiB: after ten
minutes of hostile requests 12 MiB were in use and 190 MiB kept."""


@dataclass(frozen=True, slots=True, repr=False)
class Start:
    """The settings of a start, some of them secrets.

    `properties`: broker properties, those of the command line over those of the file.
    `given`: the names of those of the command line.
    `file`: the file of settings, if there is one.
    """

    data: Path | None
    host: str | None
    port: int | None
    properties: Mapping[str, str]
    given: frozenset[str]
    file: "ConfigFile | None"

    @classmethod
    def read(
        cls,
        data: Path | None,
        listen: str | None,
        durability: str | None,
        metrics: str | None,
        options: Sequence[str],
        config: Path | None,
    ) -> Self:
        """Read the options of `serve`. Raises ConfigError."""
        file = None if config is None else _read_config_file(config)
        given = {"durability": durability, "metrics.listener": metrics}
        given |= dict(parse_option(text) for text in options)
        of_command = {name: text for name, text in given.items() if text is not None}
        properties = of_command if file is None else {**file.properties, **of_command}
        if file is not None:
            data = data or file.data
            if data is None:  # a temporary directory would take everything with it at the end
                raise ConfigError(
                    f"--config {str(config)!r} names no data directory: give log.dirs there, or "
                    "--data"
                )
        if listen is None and "listeners" not in properties:
            listen = DEFAULT_LISTEN
        host, port = (None, None) if listen is None else parse_address(listen)
        return cls(data, host, port, properties, frozenset(of_command), file)


def _read_config_file(path: Path) -> "ConfigFile":
    from txn.server.settings.config_file import read_config_file  # most starts have none

    return read_config_file(path)


def serve(
    data: Path | None,
    listen: str | None,
    durability: str | None,
    metrics: str | None,
    options: Sequence[str],
    config: Path | None = None,
    console: str | None = None,
    *,
    ends_with_parent: bool = False,
) -> None:
    """Run a broker until SIGTERM or SIGINT; print `listening on HOST:PORT` once it answers.

    SIGHUP has it read the certificates of its listeners again. A service manager that gives
    NOTIFY_SOCKET gets a message when it answers and when it stops.

    A line `NAME on HOST:PORT` follows for each further listener, and a line
    `metrics on http://HOST:PORT/metrics` where metrics are served, and the start line of a console.

    Args:
        data: The data directory; None for that of the file, or a temporary one.
        listen: HOST:PORT; None for `DEFAULT_LISTEN`, unless there are `listeners`.
        durability: As `Broker` takes it.
        metrics: As `Broker` takes it.
        options: Broker properties, each PROPERTY=VALUE.
        config: A file of Kafka's broker settings; the other arguments count before it.
        console: HOST:PORT of a console beside the broker; None for no console.
        ends_with_parent: Stop when the process that started this one has ended.

    Raises:
        ConfigError: `listen`, an option or the file is not written so.
        BrokerFailedError: A bug ended its service. And the errors of `Broker`.
    """
    parent = os.getppid()
    start = Start.read(data, listen, durability, metrics, options, config)
    show_on_stderr()
    if start.file is not None:
        start.file.log_findings()
    with (
        _stop_requests() as (request_stop, await_request),
        Broker(start.data, host=start.host, port=start.port, properties=start.properties) as broker,
    ):
        # `txn serve` owns the process, so it may change process-wide settings.
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        _core.set_open_files_max(service_of(broker).shares.files)
        _core.keep_freed_memory_below(KEPT_BYTES)
        gc.freeze()  # loaded modules stay loaded: collections may leave them out
        gc.enable()
        broker.call_when_failed(request_stop)
        if start.data is None and not ends_with_parent:
            log.warning(
                "broker.data_is_temporary",
                directory=str(broker.path),
                reason="its data goes when it stops; to keep it, start with --data DIR",
            )
        if ends_with_parent:
            Thread(target=_stop_without, args=(parent, request_stop), daemon=True).start()
        _print(_greeting(broker))
        with _console(start, broker, console) as line:
            if line is not None:
                _print(line)
            _notify_service_manager("READY=1")
            service_of(broker).preload.start()
            await_request(broker.reload_certificates)
            _notify_service_manager("STOPPING=1")
    if broker.failure is not None:
        raise broker.failure


def _stop_without(parent: int, request_stop: Callable[[], object]) -> None:
    """Request a stop once another process has become this one's parent: its own has ended."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    log.info("broker.parent_ended", pid=parent)
    request_stop()


def _notify_service_manager(state: str) -> None:
    """Send a state to the service manager, if one asks for it. Source: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")):
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(MANAGER_S)
            manager.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            manager.sendall(state.encode())
    except OSError as error:
        log.warning("service_manager.not_told", state=state, reason=str(error))


@contextmanager
def _console(start: Start, broker: Broker, listen: str | None) -> Iterator[str | None]:
    """The console beside a broker, if there is to be one; the value is its start line."""
    if listen is None:
        yield None
        return
    from txn.config import BrokerSettings
    from txn.security.listeners import read_listeners
    from txn.server.lifecycle.console_process import console_beside, way_for_console

    specs = read_listeners(BrokerSettings(start.properties), start.host, start.port)
    listeners = broker.listeners or {"": broker.bootstrap_servers}
    with console_beside(listen, *way_for_console(specs, listeners)) as line:
        yield line


def _print(lines: str) -> None:
    """Print lines to standard output, whose reader may have stopped. Raises OSError."""
    if sys.stdout is None:
        return
    output = LineWriter(sys.stdout.fileno())
    output.put(f"{lines}\n".encode())
    output.flush()  # at once: a program may read no more than a line
    if output.failure is not None:
        raise output.failure


def _greeting(broker: Broker) -> str:
    lines = [f"listening on {broker.bootstrap_servers}"]
    lines += [f"{name} on {address}" for name, address in list(broker.listeners.items())[1:]]
    if broker.metrics_address is not None:
        lines.append(f"metrics on http://{broker.metrics_address}/metrics")
    return "\n".join(lines)


@contextmanager
def _stop_requests() -> Iterator[
    tuple[Callable[[], object], Callable[[Callable[[], object]], object]]
]:
    """Turn SIGTERM and SIGINT into requests to stop: (make one, wait for one).

    The wait takes a call, which it makes at each SIGHUP.

    The kernel may hand a signal to any thread. The main thread, asleep in a lock, would never
    run its handler then; a byte in a socket wakes it.

    The handlers stay after a stop, so that a second Ctrl-C does not break the end of the process.
    A start that failed gives them back.
    """
    asked, ask = socket.socketpair()
    with asked, ask:
        ask.setblocking(False)
        signal.set_wakeup_fd(ask.fileno())
        former = {
            number: signal.signal(number, lambda _number, _frame: None)
            for number in (*STOP_SIGNALS, RELOAD_SIGNAL)
        }

        def await_request(reload: Callable[[], object]) -> None:
            while (number := asked.recv(1)[0]) not in (STOP, *STOP_SIGNALS):
                if number == RELOAD_SIGNAL:  # others are somebody else's
                    reload()

        try:
            yield lambda: ask.send(bytes([STOP])), await_request
        except BaseException:
            for number, handler in former.items():
                signal.signal(number, handler)
            raise
        finally:
            signal.set_wakeup_fd(-1)


def parse_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT. Raises ConfigError."""
    try:
        return split_address(text)
    except ValueError:
        said = f"--listen takes HOST:PORT with a port from 0 to 65535, not {text!r}"
        raise ConfigError(said) from None


def parse_option(text: str) -> tuple[str, str]:
    """Read PROPERTY=VALUE. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"-o takes PROPERTY=VALUE, not {text!r}")
    return name.strip(), value.strip()
