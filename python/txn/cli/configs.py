"""`txn configs`: show, set and remove settings of topics, brokers and groups of a cluster."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, running_cluster
from txn.cli.completing import complete_groups, complete_topics
from txn.cli.options import AsJson, DryRun, named_values
from txn.cli.output import print_json, print_lines
from txn.errors import ConfigError

if TYPE_CHECKING:
    from txn.admin.cluster import RunningCluster
    from txn.admin.configs import ConfigEntry, ConfigResource

configs_app = typer.Typer(
    help="Show, set and remove the settings of topics, brokers and groups.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Topic = Annotated[
    str | None,
    typer.Option(
        help="A topic.",
        autocompletion=complete_topics,
    ),
]
Broker = Annotated[int | None, typer.Option(min=0, help="A broker, by its id.")]
AllBrokers = Annotated[bool, typer.Option("--all-brokers", help="The default for all brokers.")]
Group = Annotated[
    str | None,
    typer.Option(
        help="A group.",
        autocompletion=complete_groups,
    ),
]


@configs_app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME", help="Show only these settings.")
    ] = None,
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    group: Group = None,
    has_all: Annotated[
        bool, typer.Option("--all", help="Show settings that have their default, too.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Show settings with their values and sources. A secret one has no value here.

    \b
    Examples:
      txn configs describe --topic orders
      txn configs describe --topic orders --all --json
      txn configs describe retention.ms --topic orders
      txn configs describe --broker 1 --bootstrap kafka-1:9092

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic or setting, or no broker answers.
    """
    from txn.admin.configs import described_configs, require_names

    resource = _resource(topic, broker, all_brokers, group)
    with running_cluster(bootstrap, command_config, settings) as running:
        _require(running, resource)
        (entries,) = described_configs(running, [resource])
    require_names(resource, entries, names or ())
    shown = [
        entry
        for entry in entries
        if (entry.name in names if names else has_all or entry.is_override)
    ]
    if as_json:
        print_json([_data(entry) for entry in shown])
    else:
        print_lines(list(_lines(shown)) or ["no setting; --all shows those that nobody has set"])


@configs_app.command("set")
def set_configs(
    values: Annotated[list[str], typer.Argument(metavar="NAME=VALUE", help="Settings.")],
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    group: Group = None,
    is_dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Set settings of one topic, broker or group. They apply at once.

    \b
    Examples:
      txn configs set --topic orders retention.ms=3600000 cleanup.policy=delete
      txn configs set --all-brokers log.cleaner.threads=2 --dry-run

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic or setting, or no broker answers.
    """
    changes = named_values(values)
    resource = _resource(topic, broker, all_brokers, group)
    with running_cluster(bootstrap, command_config, settings) as running:
        _alter(running, resource, changes, is_dry_run=is_dry_run)
    _print_change("would be set" if is_dry_run else "set", resource, changes, as_json=as_json)


@configs_app.command()
def remove(
    names: Annotated[list[str], typer.Argument(metavar="NAME", help="Settings.")],
    topic: Topic = None,
    broker: Broker = None,
    all_brokers: AllBrokers = False,
    group: Group = None,
    is_dry_run: DryRun = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Remove settings of one topic, broker or group: the next wider ones apply then.

    \b
    Examples:
      txn configs remove --topic orders retention.ms

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage, no such topic or setting, or no broker answers.
    """
    changes = dict.fromkeys(names)
    resource = _resource(topic, broker, all_brokers, group)
    with running_cluster(bootstrap, command_config, settings) as running:
        _alter(running, resource, changes, is_dry_run=is_dry_run)
    _print_change(
        "would be removed" if is_dry_run else "removed", resource, changes, as_json=as_json
    )


def _resource(
    topic: str | None, broker: int | None, is_all_brokers: bool, group: str | None
) -> "ConfigResource":
    """The thing that options name. Raises ConfigError: none, or more than one."""
    from txn.admin.configs import BROKER, GROUP, TOPIC

    named: list[ConfigResource] = []
    if topic is not None:
        named.append((TOPIC, topic))
    if broker is not None:
        named.append((BROKER, str(broker)))
    if is_all_brokers:
        named.append((BROKER, ""))
    if group is not None:
        named.append((GROUP, group))
    if len(named) != 1:
        raise ConfigError("give one of --topic, --broker, --all-brokers and --group")
    return named[0]


def _require(running: "RunningCluster", resource: "ConfigResource") -> None:
    from txn.admin.configs import TOPIC

    kind, name = resource
    if kind is TOPIC:
        running.require_topics([name])


def _alter(
    running: "RunningCluster",
    resource: "ConfigResource",
    changes: Mapping[str, str | None],
    *,
    is_dry_run: bool,
) -> None:
    from txn.admin.configs import alter_configs

    _require(running, resource)
    alter_configs(running, resource, changes, is_dry_run=is_dry_run)


def _data(entry: "ConfigEntry") -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "sensitive": entry.is_sensitive,
        "read_only": entry.is_read_only,
    }


def _lines(entries: Sequence["ConfigEntry"]) -> Iterator[str]:
    for entry in entries:
        value = "(secret)" if entry.is_sensitive else entry.value or ""
        yield f"{entry.name}={value}  ({entry.source})"


def _print_change(
    done: str, resource: "ConfigResource", changes: Mapping[str, str | None], *, as_json: bool
) -> None:
    from txn.admin.configs import name_of

    kind, name = resource
    if as_json:
        print_json({"kind": kind.name.lower(), "name": name, "configs": changes, "result": done})
        return
    print_lines(
        f"{done}  {name_of(resource)}: {setting}{'' if value is None else f'={value}'}"
        for setting, value in changes.items()
    )
