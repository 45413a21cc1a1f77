"""Names of topics and groups for the completion of a shell, asked of the cluster.

The options on the line name the cluster. If it does not answer within `TIMEOUT_S`, there are no
completions, because a shell shows no errors there.
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import typer

from txn.cli.cluster import Cluster, cluster
from txn.errors import TxnError

TIMEOUT_S: Final = 1.0


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that begin with a text."""
    from txn.access.topic_names import topic_names

    try:
        chosen = _chosen(ctx)
        found = topic_names(
            chosen.servers, security=chosen.security, timeout_s=TIMEOUT_S, advice=""
        )
    except (TxnError, OSError):
        return []
    return _beginning_with(incomplete, (name for name, _ in found))


def complete_groups(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups that begin with a text."""
    from txn.cluster.source import ClusterSource

    try:
        chosen = _chosen(ctx)
        source = ClusterSource(chosen.servers, security=chosen.security, timeout_s=TIMEOUT_S)
        try:
            found = source.groups()
        finally:
            source.close()
    except (TxnError, OSError):
        return []
    return _beginning_with(incomplete, (group.group_id for group in found))


def _chosen(ctx: typer.Context) -> Cluster:
    given: dict[str, Any] = ctx.params
    config = given.get("command_config") or os.environ.get("TXN_COMMAND_CONFIG")
    return cluster(
        given.get("bootstrap"), None if config is None else Path(config), given.get("settings")
    )


def _beginning_with(start: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(start)]
