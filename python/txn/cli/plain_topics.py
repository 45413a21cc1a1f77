"""`txn topics list`, and its plain form read without typer.

Importing typer needs 100 to 200 ms, while a broker answers in some 5 ms. So `--bootstrap` and
`--json` are read here. typer handles everything else, including help and mistakes.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from txn.access.topic_names import topic_names
from txn.cli.no_answer import ADVICE, DEFAULT_SERVERS, TIMEOUT_S, exit_if_unreachable
from txn.cli.output import print_json, print_lines, table

if TYPE_CHECKING:
    from txn.security.client import SecuritySettings

SERVERS: Final = ("--bootstrap", "--bootstrap-server", "--bootstrap-servers")


class PlainTopics(NamedTuple):
    """The options of a plain `txn topics list`."""

    servers: str
    as_json: bool


def read_plain_topics(words: Sequence[str]) -> PlainTopics | None:
    """Read the words behind `txn`; None unless they are a plain `topics list`."""
    if list(words[:2]) != ["topics", "list"] or "TXN_COMMAND_CONFIG" in os.environ:
        return None
    servers, as_json = "", False
    rest = iter(words[2:])
    for word in rest:
        name, equals, value = word.partition("=")
        if word == "--json":
            as_json = True
        elif name in SERVERS and not servers:
            servers = value if equals else next(rest, "")
            if not servers or servers.startswith("-"):
                return None
        else:
            return None
    return PlainTopics(servers or DEFAULT_SERVERS, as_json)


def list_plainly(
    servers: str, *, security: "SecuritySettings | None" = None, as_json: bool
) -> None:
    """Print the topics of a cluster that are not internal; its errors are those of `topic_names`.

    The command ends where no broker answers.
    """
    with exit_if_unreachable():
        found = topic_names(servers, security=security, timeout_s=TIMEOUT_S, advice=ADVICE)
    print_topics(found, as_json=as_json)


def print_topics(topics: Sequence[tuple[str, int]], *, as_json: bool) -> None:
    """Print topics with their numbers of partitions."""
    if as_json:
        print_json([{"topic": name, "partitions": count} for name, count in topics])
    else:
        lines = table(("topic", "partitions"), topics)
        print_lines(lines if topics else ["no topic"])
