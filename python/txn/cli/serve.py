"""`txn serve`: a broker as a process of its own.

This is the command for typer. `plain_serve` reads the usual form of it without typer. So an option
has to change in both, and a test compares them.
"""

from pathlib import Path
from typing import Annotated

import typer

from txn.cli.output import print_json, print_lines
from txn.errors import ConfigError

FREE_PORT = "127.0.0.1:0"


def serve(
    data: Annotated[
        Path | None,
        typer.Option(
            help="Data directory, created if need be. [default: temporary, removed at exit]"
        ),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to listen; port 0 means a free port. Several listeners have names: "
            "-o listeners=NAME://HOST:PORT,… [default: 127.0.0.1:9092]",
        ),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            help="What survives a power failure. commit: committed transactions; always: every "
            "acks=all answer; process: not the last moments. [default: commit; process "
            "for a temporary directory]"
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where to answer GET /metrics, for Prometheus; a loopback address, unless "
            "metrics.allow.remote=true. [default: nowhere]",
        ),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option(
            "-o",
            "--option",
            metavar="PROPERTY=VALUE",
            help="A broker property by Kafka's name; may be given again. "
            "`txn settings` lists them.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A server.properties of Apache Kafka, unchanged. Options of the command "
            "line override it.",
        ),
    ] = None,
    console: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where a console for a browser listens, as a process beside the broker; a "
            "loopback address. [default: nowhere]",
        ),
    ] = None,
    ephemeral: Annotated[
        bool,
        typer.Option(
            "--ephemeral",
            help="For the tests of a program in any language: data in a temporary directory, a "
            "free port, and a stop with the process that started it.",
        ),
    ] = False,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Check the settings and the files that they name, print the settings without "
            "secrets, and start nothing.",
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="With --check: print JSON on standard output.")
    ] = False,
) -> None:
    """Run a broker until SIGTERM or SIGINT.

    Prints `listening on HOST:PORT` on standard output once it answers; log lines go to
    standard error. With --console a line `console on http://HOST:PORT/?token=…` follows. If a bug
    ends its service, it stops with exit code 1. SIGHUP has it read the certificates of its
    listeners again.
    """
    from txn.server.lifecycle.serve import Start, serve

    options = option or ()
    if ephemeral:
        if data is not None or config is not None or check:
            other = "--data" if data is not None else "--check" if check else "--config"
            raise ConfigError(f"--ephemeral keeps no data and needs no settings: leave {other} out")
        free = listen or FREE_PORT
        serve(None, free, durability, metrics, options, None, console, ends_with_parent=True)
        return
    if not check:
        if as_json:
            raise ConfigError("--json stands beside --check alone")
        serve(data, listen, durability, metrics, options, config, console)
        return
    from txn.cli.checking import checked

    found = checked(Start.read(data, listen, durability, metrics, options, config))
    if as_json:
        print_json(found.as_data())
    else:
        print_lines(found.lines())
