"""`txn topics`: list, describe, create, grow and delete topics of a cluster.

`delete-records` is in `deleting`.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn.cli.cluster import (
    Bootstrap,
    CommandConfig,
    Setting,
    cluster,
    running_cluster,
)
from txn.cli.completing import complete_topics
from txn.cli.confirming import confirm, report_if_interrupted
from txn.cli.deleting import delete_records
from txn.cli.options import AsJson, DryRun, Yes, named_values
from txn.cli.output import print_json, print_lines, table
from txn.cli.plain_topics import list_plainly, print_topics
from txn.counts import counted
from txn.errors import ConfigError

if TYPE_CHECKING:
    from txn.admin.records import LogSize
    from txn.admin.topics import DescribedTopic

topics_app = typer.Typer(
    help="Show topics and their sizes; create, enlarge and delete topics; delete old records.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TopicName = Annotated[
    str,
    typer.Argument(
        metavar="TOPIC",
        help="A topic.",
        autocompletion=complete_topics,
    ),
]


@topics_app.command("list")
def list_topics(
    has_internal: Annotated[
        bool, typer.Option("--internal", help="Internal topics too: __consumer_offsets, …")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List topics with their numbers of partitions.

    \b
    Examples:
      txn topics list --bootstrap kafka-1:9092
      txn topics list --json | jq -r '.[].topic'

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    if has_internal:
        with running_cluster(bootstrap, command_config, settings) as running:
            found = [(name, len(partitions)) for name, partitions in running.topics().items()]
        print_topics(found, as_json=as_json)
    else:
        chosen = cluster(bootstrap, command_config, settings)
        list_plainly(chosen.servers, security=chosen.security, as_json=as_json)


@topics_app.command()
def describe(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="[default: all]",
            autocompletion=complete_topics,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Show partitions, leaders, replicas and the settings that differ from the cluster's.

    \b
    Examples:
      txn topics describe orders --bootstrap kafka-1:9092
      txn topics describe --json

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic, or no broker answers.
    """
    from txn.admin.topics import described_topics

    with running_cluster(bootstrap, command_config, settings) as running:
        found = described_topics(running, list(dict.fromkeys(topics or ())))
    if as_json:
        print_json([_data(topic) for topic in found])
    else:
        print_lines([line for topic in found for line in _lines(topic)] or ["no topic"])


@topics_app.command()
def create(
    topic: TopicName,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="[default: num.partitions of the cluster]")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="[default: default.replication.factor of the cluster]")
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting of the topic; may be given again."),
    ] = None,
    if_not_exists: Annotated[
        bool, typer.Option("--if-not-exists", help="Leave an existing topic unchanged.")
    ] = False,
    is_dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic. `txn settings --topic` lists its settings.

    \b
    Examples:
      txn topics create orders --partitions 6
      txn topics create prices --config cleanup.policy=compact --config max.message.bytes=65536
      txn topics create orders --if-not-exists --bootstrap kafka-1:9092

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    from txn.admin.topics import NewTopic, create_topic

    configs = named_values(config or ())
    _require_known(configs)
    new = NewTopic(topic, partitions or -1, replication_factor or -1, configs)
    with running_cluster(bootstrap, command_config, settings) as running:
        is_there = if_not_exists and topic in running.topics()
        if not is_there:
            create_topic(running, new, is_dry_run=is_dry_run)
        count = len(running.topics().get(topic, ())) or partitions
    if as_json:
        created = not is_there and not is_dry_run
        print_json({"topic": topic, "partitions": count, "created": created})
        return
    state = "is there" if is_there else "would be made" if is_dry_run else "made"
    size = "" if count is None else f": {counted(count, 'partition')}"
    print_lines([f"{state}  {topic}{size}"])


@topics_app.command()
def alter(
    topic: TopicName,
    partitions: Annotated[int, typer.Option(min=1, help="The new number; it can only grow.")],
    is_dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Give a topic more partitions. A key may go to another partition from then on.

    Settings of a topic are changed by `txn configs set`.

    \b
    Examples:
      txn topics alter orders --partitions 12

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic, or no broker answers.
    """
    from txn.admin.topics import add_partitions

    with running_cluster(bootstrap, command_config, settings) as running:
        add_partitions(running, topic, partitions, is_dry_run=is_dry_run)
        before = len(running.topics()[topic])
    if as_json:
        changed = {"partitions": partitions, "partitions_before": before}
        print_json({"topic": topic, **changed, "altered": not is_dry_run})
    else:
        state = "would get" if is_dry_run else "has"
        print_lines([f"{topic} {state} {partitions} partitions instead of {before}"])


@topics_app.command()
def delete(
    topics: Annotated[
        list[str],
        typer.Argument(
            metavar="TOPIC",
            help="Topics.",
            autocompletion=complete_topics,
        ),
    ],
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Ignore missing topics.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Delete topics with all their records. Names them and asks first.

    \b
    Examples:
      txn topics delete orders --bootstrap kafka-1:9092
      txn topics delete orders invoices --yes

    \b
    Exit codes: 0 done, 1 refused or answered with no, 2 wrong usage, no such topic, no broker
    answers, or no terminal to confirm at and no --yes.
    """
    from txn.admin.topics import delete_topic

    with running_cluster(bootstrap, command_config, settings) as running:
        names = list(dict.fromkeys(topics))
        if if_exists:
            names = [name for name in names if name in running.topics()]
        running.require_topics(names)
        if names and not yes:
            sizes = (
                f"{name} ({counted(len(running.topics()[name]), 'partition')})" for name in names
            )
            print(f"To be deleted, with all records: {', '.join(sizes)}", file=sys.stderr)
        if names:
            confirm("Delete?", is_confirmed=yes)
        done: list[str] = []
        with report_if_interrupted(done):
            for name in names:
                delete_topic(running, name)
                done.append(name)
    if as_json:
        print_json([{"topic": name, "deleted": True} for name in names])
    else:
        print_lines(
            [f"deleted  {name}" for name in names] or ["nothing was deleted: no such topic"]
        )


topics_app.command("delete-records")(delete_records)


@topics_app.command()
def sizes(
    topics: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            help="[default: all, with the internal ones]",
            autocompletion=complete_topics,
        ),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Show the bytes of topics and partitions on the disks of the brokers.

    \b
    Examples:
      txn topics sizes orders --bootstrap kafka-1:9092
      txn topics sizes --json | jq 'sort_by(-.size_bytes) | .[:5]'     the largest topics

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic, or no broker answers.
    """
    from txn.admin.records import log_sizes

    with running_cluster(bootstrap, command_config, settings) as running:
        names = list(dict.fromkeys(topics or running.topics()))
        running.require_topics(names)
        found = log_sizes(running, names)
    by_topic: dict[str, list[LogSize]] = {name: [] for name in sorted(names)}
    for each in found:
        by_topic[each.partition[0]].append(each)
    if as_json:
        print_json([_sizes_data(name, logs) for name, logs in by_topic.items()])
        return
    rows: list[tuple[object, ...]] = []
    for name, logs in by_topic.items():
        rows.append((name, "", f"{sum(each.size_bytes for each in logs):,}"))
        rows += [
            (f"  {name}-{each.partition[1]}", each.broker, f"{each.size_bytes:,}") for each in logs
        ]
    print_lines(table(("topic", "broker", "bytes"), rows) if rows else ["no topic"])


def _sizes_data(topic: str, logs: Sequence["LogSize"]) -> dict[str, Any]:
    return {
        "topic": topic,
        "size_bytes": sum(each.size_bytes for each in logs),
        "partitions": [
            {
                "partition": each.partition[1],
                "broker": each.broker,
                "log_dir": each.directory,
                "size_bytes": each.size_bytes,
            }
            for each in logs
        ],
    }


def _require_known(names: Mapping[str, str]) -> None:
    """Refuse a misspelled name with ConfigError; the cluster may know others."""
    if not names:
        return
    from txn.config import TOPIC_PROPERTIES
    from txn.hints import nearest

    for name in names:
        close = None if name in TOPIC_PROPERTIES else nearest(name, TOPIC_PROPERTIES)
        if close is not None:
            raise ConfigError(
                f"a topic has no setting {name!r}; did you mean {close}?", property=name
            )


def _data(topic: "DescribedTopic") -> dict[str, Any]:
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "replication_factor": topic.replication_factor,
        "configs": {entry.name: entry.value for entry in topic.configs},
        "partitions": [
            {
                "partition": each.index,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "in_sync": list(each.in_sync),
            }
            for each in topic.partitions
        ],
    }


def _lines(topic: "DescribedTopic") -> Iterator[str]:
    internal = ", internal" if topic.is_internal else ""
    factor = counted(topic.replication_factor, "replica")
    yield f"{topic.name}: {counted(len(topic.partitions), 'partition')}, {factor}{internal}"
    if topic.topic_id is not None:
        yield f"  id {topic.topic_id}"
    for entry in topic.configs:
        yield f"  {entry.name}={'' if entry.value is None else entry.value}"
    rows = [
        (
            str(each.index),
            "none" if each.leader is None else each.leader,
            ",".join(map(str, each.replicas)),
            ",".join(map(str, each.in_sync)),
        )
        for each in topic.partitions
    ]
    header = ("partition", "leader", "replicas", "in sync")
    yield from (f"  {line}" for line in table(header, rows, names=0))
