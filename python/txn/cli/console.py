"""`txn console`: pages about a cluster, or about a stopped directory, in a browser."""

import os
import signal
import sys
import time
from threading import Thread
from typing import Annotated, Final

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, cluster
from txn.cli.explain import Data
from txn.cli.output import print_text, written
from txn.errors import ConfigError

DEFAULT_LISTEN: Final = "127.0.0.1:9080"

PARENT_CHECK_S: Final = 0.5


def console(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    data: Data = None,
    listen: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT", help="A loopback address to listen at; port 0 means a free port."
        ),
    ] = DEFAULT_LISTEN,
    write: Annotated[
        bool, typer.Option("--write", help="Let the pages end transactions and move offsets.")
    ] = False,
    registry: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="A schema registry: its Avro, JSON and Protobuf schemas decode records.",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the start line as JSON on standard output.")
    ] = False,
    with_parent: Annotated[bool, typer.Option("--with-parent", hidden=True)] = False,
) -> None:
    """Show transactions, records and groups as pages in a browser, until SIGTERM or Ctrl-C.

    Prints `console on http://HOST:PORT/?token=…` once it answers. Whoever has this address acts
    with the rights of this command's connection. Where the cluster asks for a name and a password,
    its users can log in with theirs; each acts with the user's own rights. Changes nothing without
    --write.

    \b
    Examples:
      txn console --bootstrap kafka-1:9092
      txn console --command-config client.properties --write
      txn console --data /var/lib/txn              the files of a stopped broker

    \b
    Exit codes: 0 stopped, 1 the address is in use, 2 wrong usage.
    """
    if data is not None and (settings or bootstrap is not None):
        raise ConfigError("--bootstrap and -X ask running brokers, --data reads files: give one")
    if data is not None and not data.is_dir():
        raise ConfigError(f"--data {str(data)!r} is no directory")
    try:
        from txn.console.serve import serve
        from txn.console.sources import Way
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the console needs packages of its extra ({error.name}). Run `pip install "
            "'.[console]'` in txn's checkout"
        ) from None
    if with_parent:  # of `txn serve --console`
        Thread(target=_stop_without, args=(os.getppid(),), daemon=True).start()
    way = Way(cluster(bootstrap, command_config, settings), data)

    def print_line(line: str) -> None:
        print_text(line)
        with written():
            sys.stdout.flush()  # a program may read no more than a line

    serve(
        way,
        listen,
        may_write=write,
        registry=registry,
        as_json=as_json,
        print_line=print_line,
    )


def _stop_without(parent: int) -> None:
    """Stop once another process has become this one's parent: its own has ended."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_S)
    os.kill(os.getpid(), signal.SIGTERM)
