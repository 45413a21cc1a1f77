"""The console beside a broker, `txn serve --console`: a process of its own that ends with it.

So a page takes no time from the control loop, and a fault of the console leaves the broker alone.
If the broker is killed, the console notices that its parent has ended, and stops too.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import Thread
from typing import Final

from txn.errors import ConfigError, RejectedError
from txn.logs import log
from txn.security.listeners import ListenerSpec

COMMAND_CONFIG: Final = "TXN_COMMAND_CONFIG"
"""The variable with the properties of the console's connection."""

PLAINTEXT: Final = "PLAINTEXT"
STOP_S: Final = 5.0


def servers_for_console(specs: list[ListenerSpec], listeners: Mapping[str, str]) -> str:
    """The address that the console asks: of the first plain listener, or of the first of all.

    Args:
        specs: The listeners of the settings.
        listeners: Name → HOST:PORT of each; a single plain listener has any name.

    Raises:
        ConfigError: every listener is secured, and no file has the properties of a connection.
    """
    addresses = list(listeners.values())
    if COMMAND_CONFIG in os.environ:
        return addresses[0]
    for spec, address in zip(specs, addresses, strict=True):
        if spec.security_protocol == PLAINTEXT:
            return address
    raise ConfigError(
        f"--console has no way in: every listener is secured. Give the variable {COMMAND_CONFIG} "
        "a file with the properties of its connection"
    )


@contextmanager
def console_beside(listen: str, servers: str) -> Iterator[str]:
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
