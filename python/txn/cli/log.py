"""`txn log`: the contents of a log's files, their verification, and giving up damaged parts.

`dump` and `verify` read directories of txn and of Apache Kafka, write nothing and acquire no lock,
so they may run beside a broker. `accept-loss` and `lost-cache` need a stopped broker, and leave a
mark for its next start.
"""

import base64
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines, print_text, until_reader_closes
from txn.errors import DirectoryError
from txn.printable import printable

if TYPE_CHECKING:
    from txn.inspect.outcome import Outcome
    from txn.inspect.partitions import Report

TEXT_MAX = 100
"""Characters of a key or a value that are shown as text; JSON has all of them."""

log_app = typer.Typer(
    help="Print and verify the files of a log; accept losses; declare a lost cache.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Where = Annotated[
    Path,
    typer.Argument(
        metavar="PATH", help="A data directory, a partition's directory, or one file.", exists=True
    ),
]


@log_app.command()
def dump(
    path: Where,
    deep: Annotated[
        bool, typer.Option("--deep", help="Print the records of every batch too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print the contents of a log's files: batches, index entries, producers, checkpoints.

    Records of `__transaction_state`, `__consumer_offsets` and `__cluster_metadata` are
    decoded. With --json every entry is an object on a line of its own and names its file.
    Exit code 1 if anything was damaged, 2 if a file could not be read.
    """
    from txn.inspect.dump import dump as entries_of
    from txn.inspect.dump import files_to_dump

    is_damaged = is_unread = False
    try:
        with until_reader_closes():
            for file in files_to_dump(path):
                if not as_json:
                    print_text(printable(file))
                try:
                    for entry in entries_of(file, is_deep=deep):
                        is_damaged = is_damaged or entry.get("fault") is not None
                        line = {"file": str(file), **entry}
                        print_text(_as_json(line) if as_json else _as_text(entry))
                except FileNotFoundError:  # of a broker at work, or a link that leads nowhere
                    print(f"txn: {printable(file)} is not there any more", file=sys.stderr)
                except BrokenPipeError:
                    raise
                except OSError as error:
                    is_unread = True
                    print(f"txn: {printable(_unread(file, error))}", file=sys.stderr)
    except (DirectoryError, OSError) as error:
        _give_up(error)
    sys.exit(2 if is_unread else 1 if is_damaged else 0)


@log_app.command()
def verify(
    path: Where,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also open every batch, and read its records.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Check that the files of a log are sound and fit together.

    The command reads every batch, checks offsets, replays producers and transactions, and compares
    indexes, snapshots, checkpoints and metadata with the result. Each finding names the file, the
    position, the fault, and what to do; nothing is changed. Exit code 1 if there are findings, 2 if
    a file could not be read: it is named, and all others are checked.
    """
    from txn.inspect.verify import verify as look_at

    started = time.monotonic()
    try:
        with _progress() as report:
            outcome = look_at(path, is_deep=deep, report=report)
    except (DirectoryError, OSError) as error:
        _give_up(error)
    seconds = time.monotonic() - started
    if as_json:
        print_json(_outcome_as_data(outcome, seconds), indent=None)
    else:
        print_lines(_outcome_as_text(outcome, seconds))
    sys.exit(2 if outcome.unread else 1 if outcome.findings else 0)


@log_app.command("accept-loss")
def accept_loss(
    directory: Annotated[
        Path, typer.Argument(metavar="DATA", help="The data directory of a stopped broker.")
    ],
    partitions: Annotated[
        list[str], typer.Argument(metavar="PARTITION", help="Damaged ones, as in orders-0.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the loss, and accept nothing.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Accept the loss of the damaged or missing part of partitions, which are served again then.

    Records before the damage are kept; the next start removes the rest, if the files have not
    changed by then. No offset is assigned again, and transactions that were open are aborted.
    Restore a copy instead if there is one. Exit code 1 if one of the partitions is not damaged, 2
    if the directory is in use or cannot be read. In both cases nothing is accepted.
    """
    from txn.cli.accepting import NothingDamagedError, accept
    from txn.errors import StorageError

    try:
        accepted = accept(directory, partitions, is_dry_run=dry_run)
    except NothingDamagedError as error:
        print(f"txn: {error}", file=sys.stderr)
        sys.exit(1)
    except (DirectoryError, StorageError, OSError) as error:
        _give_up(error)

    if as_json:
        print_json([loss.as_data() for loss in accepted], indent=None)
        return
    lines = [line for loss in accepted for line in loss.lines()]
    print_lines([*lines, "Nothing was accepted." if dry_run else "The next start gives this up."])


@log_app.command("lost-cache")
def lost_cache(
    directory: Annotated[
        Path, typer.Argument(metavar="DATA", help="The data directory of a stopped broker.")
    ],
) -> None:
    """Declare that the storage lost unsynced data while the machine kept running.

    Use it if a volume was detached, if a file system failed and was mounted again, or if this is a
    snapshot. The next start then counts as one after a power failure. Answered commits are
    complete, and open transactions are aborted. Partitions that were refused after a kill are
    checked again.
    Exit code 2 if the directory is in use or cannot be written.
    """
    from txn.errors import StorageError
    from txn.storage.directory import DataDirectory
    from txn.storage.refusals import forget_refusals_of_kills

    try:
        locked = DataDirectory.open(directory.absolute(), takes_over=False)
        try:
            locked.note_lost_cache()
            judged_anew = forget_refusals_of_kills(locked.path)
        finally:
            locked.release()
    except (DirectoryError, StorageError, OSError) as error:
        _give_up(error)
    lines = [f"Partitions to be judged anew: {judged_anew}."] if judged_anew else []
    print_lines([*lines, "The next start counts as one after a power failure."])


@contextmanager
def _progress() -> Iterator["Report"]:
    """A bar on the terminal while there is one, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("verify", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _outcome_as_text(outcome: "Outcome", seconds: float) -> Iterator[str]:
    for finding in outcome.findings:
        where = "" if finding.position is None else f" at byte {finding.position}"
        yield f"{finding.path}{where}: {finding.what}"
        yield f"    {finding.advice}"
    for note in sorted(outcome.notes):
        yield f"note: {note.path}: {note.what}"
    for unread in sorted(outcome.unread):
        yield f"not read: {unread.path}: {unread.reason}"
    rate = outcome.bytes_read / seconds / 1e6
    yield (
        f"{outcome.partitions:,} partitions, {outcome.segments:,} segments, "
        f"{outcome.batches:,} batches, {outcome.records:,} records; "
        f"{outcome.bytes_read / 1e6:,.1f} MB in {seconds:.1f} s ({rate:,.0f} MB/s); "
        f"{outcome.state.value}: {_count(len(outcome.findings))}"
        + (f", {len(outcome.unread):,} not read" if outcome.unread else "")
    )


def _count(findings: int) -> str:
    return "no findings" if not findings else f"{findings:,} finding{'s' * (findings > 1)}"


def _outcome_as_data(outcome: "Outcome", seconds: float) -> dict[str, Any]:
    return {
        "state": outcome.state.value,
        "partitions": outcome.partitions,
        "segments": outcome.segments,
        "batches": outcome.batches,
        "records": outcome.records,
        "bytes": outcome.bytes_read,
        "seconds": round(seconds, 3),
        "findings": [
            {
                "file": str(finding.path),
                "position": finding.position,
                "what": finding.what,
                "advice": finding.advice,
            }
            for finding in outcome.findings
        ],
        "unread": [
            {"file": str(unread.path), "reason": unread.reason} for unread in outcome.unread
        ],
        "notes": [{"file": str(note.path), "what": note.what} for note in outcome.notes],
    }


def _give_up(error: Exception) -> NoReturn:
    print(f"txn: {printable(error)}", file=sys.stderr)
    sys.exit(2)


def _unread(path: Path, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror or error}"


def _as_json(entry: dict[str, Any]) -> str:
    return json.dumps(entry, default=_bytes_as_json)


def _bytes_as_json(value: bytes) -> str | dict[str, str]:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}


def _as_text(entry: dict[str, Any]) -> str:
    """One line: the kind, then `name=value` for each field; records stand further in."""
    kind, *fields = entry.items()
    words = [
        f"{printable(name)}={_word(value)}" for name, value in fields if value not in (None, [])
    ]
    return f"{'    ' if kind[1] == 'record' else '  '}{printable(kind[1])} {' '.join(words)}"


def _word(value: Any) -> str:
    if isinstance(value, bytes):
        text = repr(value)[1:]
        return text if len(text) <= TEXT_MAX else f"{text[:TEXT_MAX]}… ({len(value)} bytes)"
    if isinstance(value, str):
        return value if value and value.isprintable() and " " not in value else repr(value)
    if isinstance(value, list):
        return f"[{', '.join(_word(each) for each in value)}]"
    if isinstance(value, dict):
        return (
            f"{{{', '.join(f'{printable(name)}={_word(each)}' for name, each in value.items())}}}"
        )
    return str(value)
