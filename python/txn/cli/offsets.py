"""`txn offsets`: where the partitions of topics begin and end, and the offset of a time."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, running_cluster
from txn.cli.options import AsJson, Isolation, IsolationLevel, TopicsOrPartitions
from txn.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from txn.identifiers import TopicPartition

offsets_app = typer.Typer(
    help="Show where partitions begin and end.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@offsets_app.command("list")
def list_offsets(
    topics: TopicsOrPartitions,
    at: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE", help="earliest, latest, an offset, -10, 2h-ago, 2026-11-23T17:06."
        ),
    ] = None,
    isolation: Isolation = IsolationLevel.READ_COMMITTED,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List the ends of partitions, or with --at the offset of a place in each.

    Without --at: the first offset, the last stable one, up to which read_committed reads, and
    the end of the log.

    \b
    Examples:
      txn offsets list orders --bootstrap kafka-1:9092
      txn offsets list orders-3 payments --json
      txn offsets list orders --at 2h-ago             the first record that is not older

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic, or no broker answers.
    """
    from txn.admin.offset_specs import offsets_at, parse_offset_spec
    from txn.clock import now_ms

    place = None if at is None else parse_offset_spec(at, now_ms=now_ms())
    with running_cluster(bootstrap, command_config, settings) as running:
        named = [running.partitions(name) for name in topics]
        partitions = list(dict.fromkeys(each for group in named for each in group))
        found: dict[TopicPartition, tuple[int, ...]]
        if place is None:
            ends = running.ends(partitions)
            found = {
                each: (end.log_start_offset, end.last_stable_offset, end.end_offset)
                for each, end in ends.items()
            }
        else:
            is_committed = isolation is IsolationLevel.READ_COMMITTED
            placed = offsets_at(running, partitions, place, is_committed=is_committed)
            found = {each: (offset,) for each, offset in placed.items()}
    names = _NAMES if place is None else ("offset",)
    if as_json:
        print_json([_data(each, names, found.get(each)) for each in partitions])
    else:
        rows = [
            (f"{topic}-{index}", *_cells(found.get((topic, index)), len(names)))
            for topic, index in partitions
        ]
        header = ("partition", *(name.replace("_offset", "").replace("_", " ") for name in names))
        print_lines(table(header, rows))


_NAMES = ("log_start_offset", "last_stable_offset", "log_end_offset")


def _data(
    partition: "TopicPartition", names: Sequence[str], offsets: Sequence[int] | None
) -> dict[str, Any]:
    topic, index = partition
    known: Sequence[int | None] = offsets or [None] * len(names)
    return {"topic": topic, "partition": index, **dict(zip(names, known, strict=True))}


def _cells(offsets: Sequence[int] | None, count: int) -> Sequence[object]:
    """The offsets of a row; a partition without a leader has none."""
    return ["no leader"] * count if offsets is None else offsets
