"""The command line: `txn`. One file per command; commands are noun then verb.

Exit codes: 0 done, 1 refused, 2 wrong usage.

Users wait for the start of a broker, so it has to be fast. `plain_serve` reads the usual form of
`txn serve`, and `plain_topics` that of `txn topics list`, without typer. `commands` reads every
other command, help and mistakes. It imports typer, which takes three fifths of the time until a
broker serves. So `main` imports only the module that it needs.
"""

import errno
import gc
import os
import signal
import sys
from contextlib import suppress
from importlib import import_module

from txn.errors import ConfigError, RejectedError, TxnError
from txn.printable import is_utf8

UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE)
"""Errors of a write that stdout does not take."""


INTERRUPTED = 128 + signal.SIGINT
"""The exit code of a command that Ctrl-C has ended, as shells have it."""


class UnwritableError(Exception):
    """Standard output cannot be written, for this reason."""


def main() -> None:
    """Run the command line; every error txn raises on purpose becomes one line."""
    _replace_closed_streams()
    try:
        try:
            _run()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()  # Python would do it later, and end with 120 if that fails
    except TxnError as error:
        from txn.cli.no_answer import print_error

        print_error(error)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
    except KeyboardInterrupt:
        _print_error("interrupted")
        sys.exit(INTERRUPTED)
    except UnwritableError as error:
        _print_error(f"cannot write the output: {error}")
        sys.exit(1)
    except UnicodeEncodeError:
        wrong = next((word for word in sys.argv if not is_utf8(word)), None)
        if wrong is None:
            raise
        _print_error(f"{wrong!a} is no UTF-8, which names of a cluster are. Correct it")
        sys.exit(2)
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITABLE:
            raise
        sys.stdout = None
        if error.errno != errno.EPIPE:  # else its reader has read enough
            _print_error(f"cannot write the output: {error.strerror}")
        sys.exit(1)
    finally:
        _discard_unwritten_errors()


def _replace_closed_streams() -> None:
    """Replace a closed standard input by an empty one, and a closed standard error by /dev/null.

    `print` would use standard output instead of a standard error that is None.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115  # until the end
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def _run() -> None:
    from txn.cli.plain_serve import read_plain_serve

    asked = read_plain_serve(sys.argv[1:])
    if asked is not None:
        gc.disable()  # modules being loaded are no garbage; looking for it takes 6 % of a start
        _load_asyncio_without_ssl()
        from txn.server.lifecycle.serve import serve

        serve(*asked)
        return
    if sys.stdout is None:
        raise RejectedError("standard output is closed: give it a file, a pipe or /dev/null")
    if sys.argv[1:3] == ["topics", "list"]:
        from txn.cli.plain_topics import list_plainly, read_plain_topics

        listing = read_plain_topics(sys.argv[1:])
        if listing is not None:
            list_plainly(listing.servers, as_json=listing.as_json)
            return
    from txn.cli.commands import run

    run()


def _print_error(reason: str) -> None:
    with suppress(OSError):  # the disk of a log file may be full
        print(f"txn: {reason}", file=sys.stderr)


def _discard_unwritten_errors() -> None:
    """Drop text that stderr does not take: Python would change the exit code to 120 for it."""
    try:
        sys.stderr.flush()
    except (OSError, AttributeError):  # there may be no stderr
        sys.stderr = None


def _load_asyncio_without_ssl() -> None:
    """Load asyncio as on a Python that was built without ssl; a later import of ssl gets it.

    asyncio speaks TLS for its own connections, and a broker's loop has none: the sockets are
    Rust's. ssl takes 8 ms and 4 MB.
    """
    if "ssl" not in sys.modules:
        sys.modules["ssl"] = None  # type: ignore[assignment]
        import_module("asyncio")
        del sys.modules["ssl"]
