"""`txn serve`: a broker as a process of its own."""

import signal
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from txn.errors import ConfigError

SWITCH_INTERVAL_S = 0.0001
"""How long a busy Python thread keeps the interpreter from a waiting one: measured, the
default 5 ms shows as 5 ms in every answer that has to wait for it."""


def serve(
    data: Annotated[
        Path | None,
        typer.Option(help="Data directory, made if need be. [default: temporary, removed at exit]"),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where to listen; port 0 takes a free one.")
    ] = "127.0.0.1:9092",
    durability: Annotated[
        str | None,
        typer.Option(help="process, commit or always: what survives a power failure."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-o", "--option", metavar="PROPERTY=VALUE", help="A broker property by Kafka's name."
        ),
    ] = None,
) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Prints `listening on HOST:PORT` on standard output once it answers; log lines go to
    standard error.
    """
    from txn.logs import show_on_stderr
    from txn.server.embedded import Broker

    host, port = parse_address(listen)
    properties = dict(parse_option(text) for text in option or [])
    show_on_stderr()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    stop = threading.Event()

    def ask_to_stop(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask_to_stop)
    with Broker(data, host=host, port=port, durability=durability, properties=properties) as broker:
        print(f"listening on {broker.bootstrap_servers}", flush=True)
        stop.wait()


def parse_address(text: str) -> tuple[str, int]:
    """Read HOST:PORT. Raises ConfigError."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"--listen takes HOST:PORT with a port from 0 to 65535, not {text!r}")
    return host.strip("[]"), int(port)


def parse_option(text: str) -> tuple[str, str]:
    """Read PROPERTY=VALUE. Raises ConfigError."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"-o takes PROPERTY=VALUE, not {text!r}")
    return name.strip(), value.strip()
