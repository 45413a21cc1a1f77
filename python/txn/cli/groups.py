"""`txn groups`: the groups of a cluster, txn's or Apache Kafka's, and their lag."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting
from txn.cli.explain import AsJson, asked
from txn.cli.output import print_json, print_lines

if TYPE_CHECKING:
    from txn.explain.groups import DescribedGroup, PartitionLag

groups_app = typer.Typer(
    help="See groups and their lag in committed records.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@groups_app.command("list")
def list_groups(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List the groups and their states.

    \b
    Examples:
      txn groups list --bootstrap kafka-1:9092
      txn groups list --json

    \b
    Exit codes: 0 done, 2 wrong usage or no broker answers.
    """
    from txn.explain.cluster import ClusterSource

    with asked(bootstrap, command_config, settings, None) as source:
        assert isinstance(source, ClusterSource), "no directory was given"
        groups = source.groups()
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "state": group.state,
                    "protocol_type": group.protocol_type,
                }
                for group in groups
            ]
        )
    else:
        width = max((len(group.group_id) for group in groups), default=0)
        lines = [f"{group.group_id:{width}}  {group.state}" for group in groups]
        print_lines(lines or ["no group"])


@groups_app.command()
def describe(
    group: Annotated[str, typer.Argument(metavar="GROUP", help="Its group.id.")],
    is_exact: Annotated[
        bool,
        typer.Option("--exact", help="Count however many records there are to read."),
    ] = False,
    is_drained: Annotated[
        bool,
        typer.Option("--drained", help="Exit with 1 unless every committed record was read."),
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Tell a group's state, members, offsets and its lag in committed records.

    Markers and records of aborted transactions are no lag. The records are counted by reading them,
    up to a million offsets of a partition; beyond, the offsets stand for an upper bound.

    \b
    Examples:
      txn groups describe shop --bootstrap kafka-1:9092
      txn groups describe shop --json | jq .lag
      txn groups describe shop --drained      for scripts: has it read everything?

    \b
    Exit codes: 0 done, 2 wrong usage, no broker answers, or no such group. With --drained, 1
    stands for a group that is not drained, or not known to be.
    """
    from txn.explain.cluster import ClusterSource
    from txn.explain.groups import OFFSETS_COUNTED, described

    with asked(bootstrap, command_config, settings, None) as source:
        assert isinstance(source, ClusterSource), "no directory was given"
        offsets_counted = sys.maxsize if is_exact else OFFSETS_COUNTED
        found = described(source, group, offsets_counted=offsets_counted)
    if as_json:
        print_json(_data(found))
    else:
        print_lines(_lines(found))
    sys.exit(1 if is_drained and not found.is_drained else 0)


def _data(group: "DescribedGroup") -> dict[str, Any]:
    counted = [lag.records for lag in group.lags]
    return {
        "group": group.group_id,
        "state": group.facts.state,
        "protocol_type": group.facts.protocol_type,
        "drained": group.is_drained,
        "lag": None if None in counted else sum(lag.records or 0 for lag in group.lags),
        "members": [
            {
                "member_id": member.member_id,
                "instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
            }
            for member in group.facts.members
        ],
        "partitions": [_partition_data(lag) for lag in group.lags],
    }


def _partition_data(lag: "PartitionLag") -> dict[str, Any]:
    topic, index = lag.partition
    ends = lag.offsets
    return {
        "topic": topic,
        "partition": index,
        "committed_offset": lag.committed_offset,
        "log_start_offset": None if ends is None else ends.log_start_offset,
        "last_stable_offset": None if ends is None else ends.last_stable_offset,
        "log_end_offset": None if ends is None else ends.end_offset,
        "lag": lag.records,
        "offsets_left": lag.offsets_left,
    }


def _lines(group: "DescribedGroup") -> Iterator[str]:
    facts = group.facts
    drained = {True: "drained", False: "not drained", None: "not known to be drained"}
    yield f"{group.group_id}: {facts.state}, {drained[group.is_drained]}"
    for member in facts.members:
        instance = f" (instance {member.instance_id})" if member.instance_id else ""
        yield f"  member {member.client_id!r} from {member.client_host}{instance}"
    if not group.lags:
        yield "  no committed offset"
        return
    header = ("partition", "committed", "last stable", "log end", "lag in records")
    rows = [header, *map(_row, group.lags)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers in rows:
        columns = [f"{number:>{width}}" for number, width in zip(numbers, widths[1:], strict=True)]
        yield "  ".join(["", f"{name:{widths[0]}}", *columns])


def _row(lag: "PartitionLag") -> tuple[str, ...]:
    topic, index = lag.partition
    name, committed = f"{topic}-{index}", str(lag.committed_offset)
    if lag.offsets is None:
        return name, committed, "?", "?", "no leader"
    records = f"<= {lag.offsets_left}" if lag.records is None else str(lag.records)
    ends = lag.offsets
    return name, committed, str(ends.last_stable_offset), str(ends.end_offset), records
