"""The cluster: its brokers, and the settings of each."""

from typing import Final

from txn.admin.cluster import RunningCluster
from txn.admin.configs import BROKER, described_configs
from txn.console.site import Context, Page, View, Visit
from txn.console.sources import Source


def overview(visit: Visit, source: Source) -> Context:
    """The id, the controller and the brokers."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    cluster_id, controller_id, nodes = source.nodes()
    topics = source.topics()
    return {
        "title": "Cluster",
        "cluster_id": cluster_id,
        "controller_id": controller_id,
        "nodes": nodes,
        "topics": len(topics),
        "partitions": sum(map(len, topics.values())),
        "command": f"txn cluster describe {source.options}",
    }


def settings(visit: Visit, source: Source) -> Context:
    """The settings of a broker; those that somebody set, or all with a text in their names."""
    assert isinstance(source, RunningCluster), "the page needs brokers"
    node = visit.path("node")
    text = visit.text("name")
    has_all = visit.flag("all")
    (entries,) = described_configs(source, [(BROKER, node)])
    return {
        "title": f"Settings of broker {node}",
        "node": node,
        "text": text,
        "has_all": has_all,
        "entries": [
            each
            for each in entries
            if text.lower() in each.name.lower() and (has_all or text or each.is_override)
        ],
        "command": f"txn configs describe --broker {node}{' --all' if has_all else ''} "
        f"{source.options}",
    }


PAGE: Final = Page(
    "Cluster",
    "/cluster",
    (
        ("/cluster", View("pages/cluster/overview.html", overview)),
        ("/cluster/{node:int}", View("pages/cluster/settings.html", settings)),
    ),
    needs_brokers=True,
)
