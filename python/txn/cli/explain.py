"""`txn explain`: show the open transactions that hold back the readers of a topic."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, cluster
from txn.cli.completing import complete_topics
from txn.cli.no_answer import NOT_ASKED
from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines
from txn.counts import counted
from txn.errors import ConfigError, TxnError
from txn.identifiers import TopicPartition
from txn.printable import printable

if TYPE_CHECKING:
    from txn.cluster.facts import FactSource

LEFT_OUT_NAMED: Final = 10
"""The most partitions that a command names as left out."""

Data = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Instead of brokers: the data directory of a stopped broker."),
]


def explain(
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC[-PARTITION]",
            help="A topic, or one of its partitions. [default: each partition whose readers wait]",
            autocompletion=complete_topics,
        ),
    ] = None,
    partition: Annotated[
        int | None, typer.Option(help="This partition, if the name could mean two things.")
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Explain why read_committed readers of a topic get no further.

    Names the transaction that holds the last stable offset: its owner, its begin, its client and
    host, and the number of records behind it. Also prints which event will end it and when, the
    safe action, and its history. Changes nothing.

    \b
    Examples:
      txn explain                                     every partition whose readers wait
      txn explain orders                              every partition of the topic
      txn explain orders-3 --bootstrap kafka-1:9092   one partition, of Apache Kafka too
      txn explain orders-3 --data /var/lib/txn        the files of a stopped broker
      txn explain orders --json | jq '.[].held_by'

    \b
    Exit codes: 0 nothing hangs (readers may still wait for a transaction that is at work), 1
    something hangs or is overdue. 2 is wrong usage, no source answers, or without TOPIC a partition
    was left out: a damaged one, or one whose topic the user may not read.
    """
    from txn.cli.transaction_texts import explanation_data, explanation_lines
    from txn.explain.questions import all_partitions, held_where_allowed, partitions_of
    from txn.explain.questions import explain as explain_partitions

    if topic is None and partition is not None:
        raise ConfigError("--partition is a number within a topic: name the topic, too")
    with asked(bootstrap, command_config, settings, data) as source:
        asked_for = all_partitions(source) if topic is None else []
        left_out: Mapping[TopicPartition, str] = {}
        if topic is None:
            held, left_out = held_where_allowed(source, asked_for)
            partitions = sorted({each.open.partition for each in held})
        else:
            partitions = partitions_of(source, topic, partition)
        explained = explain_partitions(source, partitions)
        if as_json:
            print_json([explanation_data(each, source) for each in explained])
        elif topic is None and not explained:
            read = len(set(asked_for) - left_out.keys())
            if read or not left_out:  # else nothing is known
                print_lines([f"no transaction holds readers back on {counted(read, 'partition')}"])
        else:
            print_lines(explanation_lines(explained, source))
        note_refused(source, left_out)
    is_found = any(held.verdict.standing.is_finding for each in explained for held in each.held)
    sys.exit(1 if is_found else NOT_ASKED if left_out else 0)


@contextmanager
def asked(
    bootstrap: str | None,
    command_config: Path | None,
    settings: Sequence[str] | None,
    data: Path | None,
    *,
    advice: str | None = None,
    client_id: str | None = None,
) -> Iterator["FactSource"]:
    """The source to ask; an error from there ends the command with `NOT_ASKED`.

    `advice` ends the message about brokers that cannot be reached, for commands without `--data`.
    `client_id` is the name that brokers note for the requests, if another than that of readers.
    """
    if data is not None and settings:
        raise ConfigError("-X is for connections to running brokers, --data reads files")
    if bootstrap is not None and data is not None:
        raise ConfigError("--bootstrap asks running brokers, --data reads files: give one of them")
    try:
        if data is not None:
            from txn.explain.directory import DirectorySource

            directory = DirectorySource(data)
            warn_if_not_clean(directory.state)
            try:
                yield directory
            finally:
                for (topic, index), why in directory.left_out.items():
                    print(f"note: {topic}-{index} was left out: {printable(why)}", file=sys.stderr)
            return
        from txn.cluster.brokers import OTHER_SOURCES
        from txn.cluster.source import ClusterSource
        from txn.wire.transaction_descriptions import EXPLAIN_CLIENT_ID

        chosen = cluster(bootstrap, command_config, settings)
        source = ClusterSource(
            chosen.servers,
            security=chosen.security,
            options=chosen.options,
            advice=advice or OTHER_SOURCES,
            client_id=client_id or EXPLAIN_CLIENT_ID,
        )
        try:
            yield source
        finally:
            source.close()
    except (TxnError, OSError) as error:
        print(f"txn: {printable(error)}", file=sys.stderr)
        sys.exit(NOT_ASKED)


def note_refused(source: "FactSource", left_out: Mapping[TopicPartition, str]) -> None:
    """Name on standard error the partitions of a cluster that the user may not read.

    `asked` names those of a directory, which any question of the command may find.
    """
    named = list(left_out.items())[:LEFT_OUT_NAMED] if source.is_running else []
    for (topic, index), why in named:
        print(f"note: {topic}-{index} was left out: {printable(why)}", file=sys.stderr)
    if source.is_running and len(left_out) > len(named):
        more = counted(len(left_out) - len(named), "more partition")
        print(f"note: {more} were left out", file=sys.stderr)


def warn_if_not_clean(state: Any) -> None:
    """Warn on standard error if a directory was not closed in order."""
    from txn.inspect.layout import StopState

    if state is StopState.IN_USE:
        print(
            "note: a broker is at work on these files; asked with --bootstrap it tells more",
            file=sys.stderr,
        )
    elif state is StopState.LEFT:
        print(
            "note: it was left without a clean stop; if the machine went down with it, the next "
            "start of txn aborts every open transaction",
            file=sys.stderr,
        )
