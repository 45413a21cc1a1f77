"""`txn groups`: the groups of a cluster, txn's or Apache Kafka's: lag, offsets, deletion."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, running_cluster
from txn.cli.completing import complete_groups, complete_topics
from txn.cli.confirming import confirm, report_if_interrupted
from txn.cli.explain import asked
from txn.cli.group_output import CLASSIC, group_data, group_lines
from txn.cli.no_answer import ADVICE
from txn.cli.options import AsJson, PlanAlone, Yes
from txn.cli.output import print_json, print_lines, table
from txn.errors import ConfigError
from txn.printable import printable

if TYPE_CHECKING:
    from txn.admin.groups import NewGroup, OffsetChange
    from txn.identifiers import TopicPartition


groups_app = typer.Typer(
    help="Show groups and their lag in committed records, move their offsets, delete groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

GroupId = Annotated[
    str, typer.Argument(metavar="GROUP", help="The group.id.", autocompletion=complete_groups)
]


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
    from txn.cluster.source import ClusterSource

    with asked(bootstrap, command_config, settings, None, advice=ADVICE) as source:
        assert isinstance(source, ClusterSource), "no directory was given"
        groups = source.groups()
    if as_json:
        print_json(
            [
                {
                    "group": group.group_id,
                    "state": group.state,
                    "protocol_type": group.protocol_type,
                    "type": group.group_type,
                }
                for group in groups
            ]
        )
    else:
        width = max((len(group.group_id) for group in groups), default=0)
        lines = [
            f"{group.group_id:{width}}  {group.state}"
            + ("" if group.group_type in (None, CLASSIC) else f"  {group.group_type}")
            for group in groups
        ]
        print_lines(lines or ["no group"])


@groups_app.command()
def describe(
    group: GroupId,
    is_exact: Annotated[
        bool,
        typer.Option("--exact", help="Count all records, however many there are."),
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
    """Print a group's state, the owners of its partitions, offsets and lag in committed records.

    Markers and records of aborted transactions do not count. The records are counted by reading
    them, up to a million offsets of a partition. Beyond that the lag is an upper bound, computed
    from offsets. The same holds for a partition in which the group has no offset.

    \b
    Examples:
      txn groups describe shop --bootstrap kafka-1:9092
      txn groups describe shop --json | jq .lag
      txn groups describe shop --drained      for scripts: has it read everything?

    \b
    Exit codes: 0 done, 2 wrong usage, no broker answers, or no such group. With --drained, 1
    means that the group is not drained, or that this is not known.
    """
    from txn.cluster.groups import OFFSETS_COUNTED, described
    from txn.cluster.source import ClusterSource

    with asked(bootstrap, command_config, settings, None, advice=ADVICE) as source:
        assert isinstance(source, ClusterSource), "no directory was given"
        offsets_counted = sys.maxsize if is_exact else OFFSETS_COUNTED
        found = described(source, group, offsets_counted=offsets_counted)
    if as_json:
        print_json(group_data(found))
    else:
        print_lines(group_lines(found, source.options))
    sys.exit(1 if is_drained and not found.is_drained else 0)


@groups_app.command("reset-offsets")
def reset_offsets(
    group: GroupId,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TOPIC[-PARTITION]", help="May be given again.", autocompletion=complete_topics
        ),
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All topics in which the group has an offset.")
    ] = False,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="earliest, latest, an offset, -10 (ten before the end), 2h-ago, 2026-11-23T17:06.",
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option(metavar="OFFSETS", help="The distance; below 0 it moves backwards."),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A file that `--json` of this command or of `groups describe` printed.",
        ),
    ] = None,
    yes: Yes = False,
    is_dry_run: PlanAlone = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Move the committed offsets of a group without members. Shows the plan and asks first.

    An offset stays within its log. A time means the first record at or after it. A group that does
    not exist is created. The plan says so, and names an existing group with a similar name.

    \b
    Examples:
      txn groups reset-offsets shop --topic orders --to earliest --dry-run
      txn groups reset-offsets shop --topic orders-3 --to 217
      txn groups reset-offsets shop --all-topics --to 2h-ago --yes     in scripts
      txn groups reset-offsets shop --all-topics --shift-by -100
      txn groups reset-offsets shop --from-file shop.json     of `groups describe shop --json`

    \b
    Exit codes: 0 done, 1 refused or answered with no, 2 wrong usage, no such topic, no broker
    answers, or no terminal to confirm at and no --yes.
    """
    if not group:
        raise ConfigError("the name of the group is empty: a group has one")
    _require_one_way(to, shift_by, from_file, topic, is_of_all=all_topics)
    from txn.admin.groups import (
        commit,
        moved_to,
        new_group,
        require_no_members,
        restored,
        shifted_by,
        unknown_group,
    )
    from txn.admin.offset_specs import parse_offset_spec
    from txn.clock import now_ms

    place = None if to is None else parse_offset_spec(to, now_ms=now_ms())
    saved = None if from_file is None else _saved_offsets(from_file)
    with running_cluster(bootstrap, command_config, settings) as running:
        require_no_members(running, group)
        if saved is not None:
            changes = restored(running, group, saved)
        else:
            committed = running.committed_offsets(group)
            if all_topics and not committed:
                raise unknown_group(running, group)
            named = [running.partitions(name) for name in topic or ()]
            partitions = list(committed) if all_topics else [each for one in named for each in one]
            if place is not None:
                changes = moved_to(running, group, partitions, place)
            else:
                assert shift_by is not None, "it was checked"
                changes = shifted_by(running, group, partitions, shift_by)
        new = new_group(running, group)
        if not is_dry_run:
            _print_plan(group, None if yes and as_json else new, [] if yes else changes)
            confirm("Move them?", is_confirmed=yes)
            commit(running, group, changes)
    if as_json:
        print_json(
            {
                "group": group,
                "dry_run": is_dry_run,
                "new_group": new is not None,
                "nearest_group": None if new is None else new.nearest,
                "partitions": [
                    {
                        "topic": each.partition[0],
                        "partition": each.partition[1],
                        "committed_offset": each.after,
                        "committed_offset_before": each.before,
                    }
                    for each in changes
                ],
            }
        )
        return
    note = [new.note()] if is_dry_run and new is not None else []
    print_lines([*note, *_changed(changes, "would be" if is_dry_run else "is now")])


def _print_plan(group_id: str, new: "NewGroup | None", changes: Sequence["OffsetChange"]) -> None:
    """Print the group that is made, and the changes that a person is asked about."""
    lines = [] if new is None else [new.note()]
    if changes:
        lines += [f"To be moved, the offsets of group {group_id!r}:", *_changed(changes)]
    for line in lines:
        print(printable(line), file=sys.stderr)


def _changed(changes: Iterable["OffsetChange"], after: str = "would be") -> Iterable[str]:
    rows = [
        (
            "-".join(map(str, each.partition)),
            "none" if each.before is None else each.before,
            each.after,
        )
        for each in changes
    ]
    return table(("partition", "committed", after), rows)


@groups_app.command()
def delete(
    groups: Annotated[
        list[str],
        typer.Argument(
            metavar="GROUP",
            help="A group without members.",
            autocompletion=complete_groups,
        ),
    ],
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Delete groups with their offsets. Asks first.

    \b
    Examples:
      txn groups delete shop --bootstrap kafka-1:9092

    \b
    Exit codes: 0 done, 1 refused or answered with no, 2 wrong usage, no such group, no broker
    answers, or no terminal to confirm at and no --yes.
    """
    from txn.admin.groups import delete_group, require_groups

    names = list(dict.fromkeys(groups))
    done: list[str] = []
    with running_cluster(bootstrap, command_config, settings) as running:
        require_groups(running, names)
        confirm(f"Delete {', '.join(names)}, with the offsets?", is_confirmed=yes)
        with report_if_interrupted(done):
            for name in names:
                delete_group(running, name)
                done.append(name)
    if as_json:
        print_json([{"group": name, "deleted": True} for name in names])
    else:
        print_lines(f"deleted  {name}" for name in names)


def _require_one_way(
    to: str | None,
    shift_by: int | None,
    from_file: Path | None,
    topics: Sequence[str] | None,
    *,
    is_of_all: bool,
) -> None:
    """Check that options name partitions and one way to their offsets. Raises ConfigError."""
    if sum(each is not None for each in (to, shift_by, from_file)) != 1:
        raise ConfigError("give the offsets in one way: --to, --shift-by or --from-file")
    if from_file is not None and (topics or is_of_all):
        raise ConfigError("--from-file names the partitions: leave --topic and --all-topics out")
    if from_file is None and bool(topics) == is_of_all:
        raise ConfigError("give the partitions in one way: --topic, or --all-topics")


def _saved_offsets(path: Path) -> dict["TopicPartition", int]:
    """Read committed offsets from a file. Raises ConfigError."""
    name = f"--from-file {str(path)!r}"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is no JSON: {error}") from None
    entries = data.get("partitions") if isinstance(data, dict) else None
    if not isinstance(entries, list):
        raise ConfigError(f"{name} is no output of `txn groups describe --json`: no partitions")
    found = {}
    for number, entry in enumerate(entries, 1):
        parts = entry if isinstance(entry, dict) else {}
        topic, index, offset = (
            parts.get(part) for part in ("topic", "partition", "committed_offset")
        )
        if offset is None and "committed_offset" in parts:
            continue
        if not isinstance(topic, str) or type(index) is not int or type(offset) is not int:
            raise ConfigError(
                f"{name}: entry {number} of partitions needs a topic, a partition and a "
                "committed_offset, which are a text and two numbers"
            )
        found[topic, index] = offset
    return found
