"""`txn transactions`: list transactions, describe one, find hanging ones, and end one."""

import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting
from txn.cli.confirming import confirm
from txn.cli.explain import Data, asked, note_refused
from txn.cli.no_answer import ADVICE, NOT_ASKED
from txn.cli.options import AsJson, Yes
from txn.cli.output import print_json, print_lines
from txn.errors import ConfigError, RejectedError
from txn.printable import printable

if TYPE_CHECKING:
    from txn.explain.questions import HoldingTransaction
    from txn.identifiers import TopicPartition

transactions_app = typer.Typer(
    help="Show transactions, find hanging ones, end one.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


class StateName(StrEnum):
    """The states of a transactional id, by Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"


@transactions_app.command("list")
def list_transactions(
    state: Annotated[
        list[StateName] | None,
        typer.Option(help="Only in this state; may be given again.", case_sensitive=False),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="Only transactions open for longer than this: 90s, 15m, 2h."
        ),
    ] = None,
    prefix: Annotated[str, typer.Option(help="Only ids that begin with this.")] = "",
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """List transactional ids: open transactions first, the oldest first.

    \b
    Examples:
      txn transactions list --bootstrap kafka-1:9092
      txn transactions list --longer-than 5m          open for more than five minutes
      txn transactions list --state Ongoing --json

    \b
    Exit codes: 0 done. 2 is wrong usage, no broker or directory answers, or a damaged partition was
    left out.
    """
    from txn.cli.transaction_texts import list_lines, owner_data
    from txn.coordinator.transaction.listing import STATES_BY_LABEL
    from txn.explain.questions import listed
    from txn.moments import parse_duration

    longer_than_ms = None if longer_than is None else parse_duration(longer_than)
    with asked(bootstrap, command_config, settings, data) as source:
        owners = listed(
            source,
            states=[STATES_BY_LABEL[each] for each in state or ()],
            longer_than_ms=longer_than_ms,
            prefix=prefix,
        )
        if as_json:
            print_json([owner_data(owner) for owner in owners])
        elif owners:
            print_lines(list_lines(owners, source.now_ms()))
        else:
            print_lines(["no transactional id"])
    sys.exit(_code([], source.left_out))


@transactions_app.command()
def describe(
    transactional_id: Annotated[
        str, typer.Argument(metavar="TRANSACTIONAL_ID", help="The id that its producer has.")
    ],
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Show the state of a transactional id, and the history of its newest transaction.

    \b
    Examples:
      txn transactions describe pay-3 --bootstrap kafka-1:9092
      txn transactions describe pay-3 --data /var/lib/txn --json

    \b
    Exit codes: 0 nothing hangs, 1 its transaction hangs or is overdue. 2 is wrong usage, no
    broker or directory answers, no such id, or a partition was left out: a damaged one, or one
    whose topic the user may not read.
    """
    from txn.cli.transaction_texts import (
        description_lines,
        held_data,
        owner_data,
        timeline_data,
    )
    from txn.explain.questions import described

    with asked(bootstrap, command_config, settings, data) as source:
        found = described(source, transactional_id)
        if as_json:
            print_json(
                owner_data(found.owner)
                | {
                    "holds": [held_data(each, source) for each in found.holds],
                    "timeline": timeline_data(found.timeline),
                }
            )
        else:
            print_lines(description_lines(found, source))
        note_refused(source, found.left_out)
    sys.exit(_code(found.holds, found.left_out))


@transactions_app.command()
def hanging(
    topic: Annotated[
        str | None,
        typer.Option(metavar="TOPIC[-PARTITION]", help="Search only there. [default: every topic]"),
    ] = None,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    data: Data = None,
    as_json: AsJson = False,
) -> None:
    """Find transactions that hold readers back and will not end by themselves in time.

    It lists transactions that no coordinator knows, which nothing will ever end. It also lists
    those past their timeout, and decided ones whose marker does not arrive. Each is checked twice,
    so a transaction that is just ending is not listed.

    \b
    Examples:
      txn transactions hanging --bootstrap kafka-1:9092
      txn transactions hanging --topic orders --json
      txn transactions hanging --data /var/lib/txn

    \b
    Exit codes: 0 nothing hangs, 1 findings. 2 is wrong usage, no broker or directory answers, or a
    partition was left out: a damaged one, or one whose topic the user may not read.
    """
    from txn.cli.transaction_texts import hanging_lines, held_data, nothing_hangs_lines
    from txn.explain.questions import (
        all_partitions,
        held_open,
        held_where_allowed,
        partitions_of,
    )

    with asked(bootstrap, command_config, settings, data) as source:
        if topic is None:
            partitions = all_partitions(source)
            opened, left_out = held_where_allowed(source, partitions)
        else:
            partitions = partitions_of(source, topic, None)
            opened, left_out = held_open(source, partitions), source.left_out
        held = [each for each in opened if each.verdict.standing.is_finding]
        if as_json:
            print_json([held_data(each, source) for each in held])
        elif held:
            print_lines(hanging_lines(held, source))
        elif (read := len(set(partitions) - left_out.keys())) or not left_out:  # else unknown
            print_lines(nothing_hangs_lines(read, opened, topic, source))
        note_refused(source, left_out)
    sys.exit(_code(held, left_out))


@transactions_app.command()
def abort(
    transactional_id: Annotated[
        str | None,
        typer.Option(help="Abort this id's transaction, and fence its producer."),
    ] = None,
    topic_partition: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC-N", help="Abort a transaction there that no coordinator knows."
        ),
    ] = None,
    start_offset: Annotated[
        int | None,
        typer.Option(help="With --topic-partition: the transaction's first offset."),
    ] = None,
    despite_commit: Annotated[
        bool,
        typer.Option(
            "--despite-commit", help="Abort even if its coordinator has committed it, or may have."
        ),
    ] = False,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the consequences, and stop.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
) -> None:
    """End a transaction from outside. Prints the consequences and asks first.

    The command checks again after the answer, and ends nothing that it has not shown.

    With a transactional id, the coordinator aborts the whole transaction and fences its producer.
    That is safe, unless the transaction is prepared for a two-phase commit. Then first look at the
    decision of the other system: if it committed, an abort loses these records.

    With a partition, the command writes an abort marker without the coordinator. It does so only
    for a transaction that no coordinator knows; `txn transactions hanging` names it, with the
    offset. A transaction that the coordinator committed is refused: its marker may be lost, and an
    abort would hide its records.

    \b
    Examples:
      txn transactions abort --transactional-id pay-3 --bootstrap kafka-1:9092
      txn transactions abort --topic-partition orders-3 --start-offset 217 --yes

    \b
    Exit codes: 0 aborted, or nothing was open; 1 refused, answered with no, or ended meanwhile;
    2 wrong usage, no such id or topic, no broker answers, or no terminal to confirm at and no
    --yes.
    """
    by_id = transactional_id is not None
    by_offset = topic_partition is not None and start_offset is not None
    if by_id == by_offset or (by_id and (topic_partition, start_offset) != (None, None)):
        raise ConfigError(
            "give the transaction to abort in one way: --transactional-id ID, or "
            "--topic-partition TOPIC-N with --start-offset OFFSET"
        )
    from txn.cluster.source import ClusterSource
    from txn.explain.abort import NothingOpen, carry_out, plan_by_id, plan_by_offset
    from txn.explain.questions import partitions_of
    from txn.wire.transaction_descriptions import ABORT_CLIENT_ID

    way = (bootstrap, command_config, settings, None)
    with asked(*way, advice=ADVICE, client_id=ABORT_CLIENT_ID) as source:
        assert isinstance(source, ClusterSource), "no directory was given"
        try:
            if transactional_id is not None:
                plan = plan_by_id(source, transactional_id)
            else:
                assert topic_partition is not None, "it was checked"
                assert start_offset is not None, "it was checked"
                partitions = partitions_of(source, topic_partition, None)
                if len(partitions) > 1:
                    raise ConfigError(
                        f"{topic_partition!r} is a topic. Say which of its {len(partitions)} "
                        f"partitions: {topic_partition}-N"
                    )
                plan = plan_by_offset(
                    source, partitions[0], start_offset, despite_commit=despite_commit
                )
            if isinstance(plan, NothingOpen):
                print_lines([plan.why])
                return
            consequences = (f"  - {consequence}" for consequence in plan.consequences)
            print_lines([f"To be aborted: {plan.what}.", *consequences])
            if dry_run:
                return
            confirm("Abort it?", is_confirmed=yes)
            print_lines([carry_out(source, plan)])
        except RejectedError as error:
            print(f"txn: {printable(error)}", file=sys.stderr)
            sys.exit(1)


def _code(held: "Sequence[HoldingTransaction]", left_out: "Mapping[TopicPartition, str]") -> int:
    """The exit code by the standing of open transactions."""
    if any(each.verdict.standing.is_finding for each in held):
        return 1
    return NOT_ASKED if left_out else 0
