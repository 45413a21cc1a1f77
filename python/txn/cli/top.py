"""`txn top`: topics, groups and open transactions of a cluster, with rates, as they change."""

import json
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, running_cluster
from txn.cli.output import table, until_reader_closes
from txn.cli.stopping import is_reader_gone, sigterm_as_ctrl_c
from txn.errors import ConfigError, RetriableError
from txn.moments import duration, moment, parse_duration
from txn.printable import printable

if TYPE_CHECKING:
    from rich.table import Table

    from txn.admin.activity import Sample
    from txn.admin.cluster import RunningCluster

EVERY_MS_MIN: Final = 100
OTHERS_MAX: Final = 8
"""The most groups, and the most transactions, on a terminal."""
FRAME_LINES: Final = 14
"""Lines of a terminal that are titles, headers and space between the tables."""

TOPICS: Final = ("topic", "partitions", "offsets", "offsets/s", "held back")
GROUPS: Final = ("group", "state", "lag in offsets", "offsets/s")
TRANSACTIONS: Final = ("transactional id", "state", "open for", "partitions")

Section = tuple[str, Sequence[str], list[Sequence[object]], int]
"""Title, header, rows, and the number of columns that are names."""


def top(
    every: Annotated[
        str, typer.Option(metavar="DURATION", help="Time between two updates: 500ms, 2s.")
    ] = "2s",
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this number of updates.")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each update as a line of JSON.")
    ] = False,
) -> None:
    """Show topics, groups and open transactions with their rates, until Ctrl-C.

    On a terminal the tables change in place, the busiest topics first. Elsewhere each look is
    printed below the last one. Rates count offsets: markers of transactions are some, too. "held
    back" are offsets behind an open transaction, which `txn explain` names.

    \b
    Examples:
      txn top --bootstrap kafka-1:9092
      txn top --every 10s --json >> activity.jsonl
      txn top -n 1                                    one look, without rates

    \b
    Exit codes: 0 done, also by Ctrl-C; 1 refused; 2 wrong usage or no broker answers.
    """
    every_ms = parse_duration(every)
    if every_ms < EVERY_MS_MIN:
        raise ConfigError(f"--every {every} is short: give {EVERY_MS_MIN}ms or more")
    with sigterm_as_ctrl_c():
        try:
            with running_cluster(bootstrap, command_config, settings) as running:
                is_shown = sys.stdout.isatty() and not as_json
                looks = _Looks(running, every_ms / 1000, count, is_patient=is_shown)
                if as_json:
                    with until_reader_closes():
                        for before, now in looks:
                            print(json.dumps(_data(before, now)), flush=True)
                elif is_shown:
                    _show(looks)
                else:
                    with until_reader_closes():
                        for before, now in looks:
                            print("\n".join(_lines(before, now)), flush=True)
        except KeyboardInterrupt:
            return


class _Looks:
    """Looks at a cluster: iterates the last sample, if there is one, and a new one.

    With `is_patient` a cluster that no longer answers is shown as it was, with the outage.
    """

    def __init__(
        self, running: "RunningCluster", every_s: float, count: int | None, *, is_patient: bool
    ) -> None:
        self._running = running
        self._every_s = every_s
        self._left = count
        self._is_patient = is_patient
        self.outage: str | None = None

    def __iter__(self) -> "Iterator[tuple[Sample | None, Sample]]":
        from txn.admin.activity import sampled

        before: Sample | None = None
        while True:
            try:
                now = sampled(self._running)
            except RetriableError as error:
                if before is None or not self._is_patient:
                    raise
                self.outage = str(error)
                yield None, before
            else:
                self.outage = None
                yield before, now
                before = now
            if self._left is not None:
                self._left -= 1
            if self._left == 0 or is_reader_gone():
                return
            self._running.wait(self._every_s)


# ---------------------------------------------------------------- output


def _data(before: "Sample | None", now: "Sample") -> dict[str, Any]:
    rates = _Rates(before, now)
    groups, transactions = now.groups, now.transactions
    return {
        "at": now.at_ms,
        "topics": [
            {
                "topic": each.name,
                "partitions": each.partitions,
                "log_start_offsets": each.start_offsets,
                "last_stable_offsets": each.stable_offsets,
                "log_end_offsets": each.end_offsets,
                "offsets_per_s": rates.of_topic(each.name),
            }
            for each in now.topics.values()
        ],
        "groups": None
        if groups is None
        else [
            {
                "group": each.group_id,
                "state": each.state,
                "committed_offsets": each.committed_offsets,
                "lag": each.lag,
                "offsets_per_s": rates.of_group(each.group_id),
            }
            for each in groups.values()
        ],
        "transactions": None
        if transactions is None
        else [
            {
                "transactional_id": each.transactional_id,
                "state": each.state.label,
                "start_time": each.start_ms,
                "partitions": ["-".join(map(str, one)) for one in each.partitions],
            }
            for each in transactions
        ],
    }


class _Rates:
    """Growth a second between two samples; None where one of them does not know."""

    def __init__(self, before: "Sample | None", now: "Sample") -> None:
        self._before = before
        self._now = now
        self._elapsed_ms = 0 if before is None else now.at_ms - before.at_ms

    def of_topic(self, name: str) -> float | None:
        """Offsets written to a topic."""
        known = None if self._before is None else self._before.topics.get(name)
        ends = None if known is None else known.end_offsets
        return self._rate(ends, self._now.topics[name].end_offsets)

    def of_group(self, group_id: str) -> float | None:
        """Offsets that a group has committed."""
        groups = None if self._before is None else self._before.groups
        known = (groups or {}).get(group_id)
        now = (self._now.groups or {}).get(group_id)
        return self._rate(
            None if known is None else known.committed_offsets,
            None if now is None else now.committed_offsets,
        )

    def _rate(self, before: int | None, now: int | None) -> float | None:
        from txn.admin.activity import rate

        return rate(before, now, self._elapsed_ms)


def _sections(before: "Sample | None", now: "Sample") -> list[Section]:
    """The tables: busiest topics, groups with the largest lag, oldest transactions first."""
    rates = _Rates(before, now)
    topics = sorted(now.topics.values(), key=lambda each: -(rates.of_topic(each.name) or 0))
    sections: list[Section] = [
        (
            "topics",
            TOPICS,
            [
                (
                    each.name,
                    each.partitions,
                    f"{each.end_offsets - each.start_offsets:,}",
                    _per_s(rates.of_topic(each.name)),
                    f"{each.held_back:,}" if each.held_back else "-",
                )
                for each in topics
            ],
            1,
        )
    ]
    groups = sorted((now.groups or {}).values(), key=lambda each: -(each.lag or 0))
    lags = [
        (
            each.group_id,
            each.state,
            "?" if each.lag is None else f"{each.lag:,}",
            _per_s(rates.of_group(each.group_id)),
        )
        for each in groups
    ]
    sections.append((_titled("groups", now.groups), GROUPS, list(lags), 2))
    opened = [
        (
            each.transactional_id,
            each.state.label,
            "-" if each.start_ms is None else duration(max(now.at_ms - each.start_ms, 0)),
            ",".join("-".join(map(str, one)) for one in each.partitions) or "-",
        )
        for each in now.transactions or ()
    ]
    title = _titled("open transactions", now.transactions)
    sections.append((title, TRANSACTIONS, list(opened), 4))
    return sections


def _titled(title: str, found: object) -> str:
    return f"{title}: not for this user" if found is None else title


def _per_s(found: float | None) -> str:
    return "-" if found is None else f"{found:,.1f}"


def _lines(before: "Sample | None", now: "Sample") -> Iterator[str]:
    yield moment(now.at_ms)
    for title, header, rows, names in _sections(before, now):
        yield f"{title}: {len(rows)}" if rows else f"{title}: none"
        if rows:
            yield from (f"  {line}" for line in table(header, rows, names=names))


def _show(looks: _Looks) -> None:
    """Show tables that change in place, on the terminal's other screen."""
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    console = Console()
    with Live(console=console, screen=True, auto_refresh=False) as live:
        for before, now in looks:
            parts: list[Text | Table] = [
                Text(f"txn top  {moment(now.at_ms)}  Ctrl-C ends", style="bold")
            ]
            if looks.outage is not None:
                parts.append(Text(f"no answer: {printable(looks.outage)}", style="bold red"))
            rows_max = max(console.size.height - FRAME_LINES, 1)
            sections = _sections(before, now)
            others = sum(min(len(rows), OTHERS_MAX) for _, _, rows, _ in sections[1:])
            for number, section in enumerate(sections):
                limit = OTHERS_MAX if number else max(rows_max - others, 1)
                parts.append(_rich_table(section, limit))
            live.update(Group(*parts), refresh=True)


def _rich_table(section: Section, rows_max: int) -> "Table":
    from rich import box
    from rich.table import Table
    from rich.text import Text

    title, header, rows, names = section
    more = f", {len(rows) - rows_max} more" if len(rows) > rows_max else ""
    made = Table(box=box.SIMPLE_HEAD, title=f"{title}{more}", title_justify="left", pad_edge=False)
    for number, name in enumerate(header):
        made.add_column(name, justify="left" if number < names else "right", no_wrap=True)
    for row in rows[:rows_max]:
        made.add_row(*(Text(printable(cell)) for cell in row))
    return made
