"""`txn cluster`: the cluster id and the brokers, txn's or Apache Kafka's."""

from typing import Any

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, running_cluster
from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines, table
from txn.counts import counted

cluster_app = typer.Typer(
    help="Show a cluster and its brokers.", no_args_is_help=True, rich_markup_mode=None
)


@cluster_app.command()
def describe(
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Show a cluster's id, controller, brokers and number of topics.

    \b
    Examples:
      txn cluster describe --bootstrap kafka-1:9092
      txn cluster describe --json | jq -r '.brokers[].host'

    \b
    Exit codes: 0 done, 1 refused, 2 wrong usage or no broker answers.
    """
    with running_cluster(bootstrap, command_config, settings) as running:
        cluster_id, controller_id, nodes = running.nodes()
        topics = running.topics()
    partitions = sum(map(len, topics.values()))
    if as_json:
        brokers: list[dict[str, Any]] = [
            {"id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in nodes
        ]
        data = {"cluster_id": cluster_id, "controller": controller_id, "brokers": brokers}
        print_json(data | {"topics": len(topics), "partitions": partitions})
        return
    rows = [
        (node.node_id, f"{node.host}:{node.port}", node.rack or "-", _role(node, controller_id))
        for node in nodes
    ]
    sizes = f"{counted(len(topics), 'topic')}, {counted(partitions, 'partition')}"
    print_lines(
        [
            f"cluster {cluster_id}: {sizes}, with the internal ones",
            *table(("broker", "address", "rack", "role"), rows, names=4),
        ]
    )


def _role(node: Any, controller_id: int) -> str:
    return "controller" if node.node_id == controller_id else "-"
