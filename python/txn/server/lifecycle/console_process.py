"""The console beside a broker, `txn serve --console`: a process of its own that ends with it.

So a page takes no time from the control loop, and a fault of the console leaves the broker alone.
If the broker is killed, the console notices that its parent has ended, and stops too.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Final

from txn.errors import ConfigError, RejectedError
from txn.logs import log
from txn.security.listeners import ListenerSpec

COMMAND_CONFIG: Final = "TXN_COMMAND_CONFIG"
"""The variable with the properties of the console's connection."""

PLAINTEXT: Final = "PLAINTEXT"
STOP_S: Final = 5.0


def way_for_console(
    specs: list[ListenerSpec], listeners: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """The address that the console asks, and its environment.

    The address is that of the first listener with the protocol of the file that TXN_COMMAND_CONFIG
    names. Without such a listener, or without a file, it is that of the first plain listener, and
    the environment has no such variable.

    Args:
        specs: The listeners of the settings.
        listeners: Name → HOST:PORT of each; a single plain listener has any name.

    Raises:
        ConfigError: no listener has the protocol of the file, and none is plain; or the file
            cannot be read.
    """
    by_protocol: dict[str, str] = {}
    for spec, address in zip(specs, listeners.values(), strict=True):
        by_protocol.setdefault(spec.security_protocol, address)
    path = os.environ.get(COMMAND_CONFIG)
    protocol = None if path is None else _protocol_in(path)
    if protocol is not None and protocol in by_protocol:
        return by_protocol[protocol], os.environ
    if PLAINTEXT not in by_protocol:
        raise ConfigError(
            f"--console has no way in: every listener is secured. Give the variable "
            f"{COMMAND_CONFIG} a file with the properties of its connection, whose "
            f"security.protocol is {' or '.join(sorted(by_protocol))}"
        )
    others = {name: value for name, value in os.environ.items() if name != COMMAND_CONFIG}
    return by_protocol[PLAINTEXT], others


def _protocol_in(path: str) -> str:
    """The protocol of a file of properties; without one it is PLAINTEXT. Raises ConfigError."""
    import javaproperties

    try:
        properties = javaproperties.loads(Path(path).read_text("latin-1"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{COMMAND_CONFIG} {path!r} cannot be read: {error}") from None
    return properties.get("security.protocol", PLAINTEXT).strip().upper()


@contextmanager
def console_beside(listen: str, servers: str, environment: Mapping[str, str]) -> Iterator[str]:
    """A console until the end of the block; the value is its start line.

    Raises:
        RejectedError: it did not start; its own line on standard error has the reason.
    """
    command = [sys.executable, "-m", "txn", "console", "--listen", listen, "--with-parent"]
    process = subprocess.Popen(
        [*command, "--bootstrap", servers],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stdout is not None, "it is a pipe"
    with process.stdout as output:
        line = output.readline().rstrip("\n")
    is_stopping = False

    def watch() -> None:
        code = process.wait()
        if not is_stopping:
            log.warning("console.ended", exit_code=code, reason="the broker goes on without it")

    try:
        if not line:
            raise RejectedError(f"the console did not start (exit code {process.wait()})")
        Thread(target=watch, name="txn-console", daemon=True).start()
        yield line
    finally:
        is_stopping = True
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
