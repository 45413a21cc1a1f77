"""`txn consume`: the records of topics on standard output, as text or as lines of JSON."""

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated, cast

import typer

from txn.cli.cluster import (
    Bootstrap,
    Cluster,
    CommandConfig,
    Setting,
    cluster,
    running_cluster,
)
from txn.cli.completing import complete_groups
from txn.cli.options import Isolation, IsolationLevel, TopicsOrPartitions
from txn.cli.output import print_bytes, until_reader_closes
from txn.cli.record_texts import Columns, Format, Record, as_json_line, as_line
from txn.cli.stopping import is_reader_gone, sigterm_as_ctrl_c
from txn.counts import counted
from txn.errors import ConfigError, RetriableError, TxnError

if TYPE_CHECKING:
    from confluent_kafka import Message

    from txn.admin.cluster import RunningCluster
    from txn.admin.offset_specs import OffsetSpec
    from txn.client.stored_records import StoredRecords
    from txn.identifiers import TopicPartition


def consume(
    topics: TopicsOrPartitions,
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="PLACE",
            help="earliest, latest, an offset, -10 (ten before the end), 2h-ago, "
            "2026-11-23T17:06. [default: earliest; latest with --follow]",
        ),
    ] = None,
    end: Annotated[
        str | None, typer.Option("--to", metavar="PLACE", help="Where to stop. [default: the end]")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue with new records until Ctrl-C.")
    ] = False,
    records_max: Annotated[
        int | None,
        typer.Option(
            "--max-records",
            "--max-messages",
            "-n",
            min=1,
            help="Stop after this number of records.",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Read as a member of this group, and commit its offsets.",
            autocompletion=complete_groups,
        ),
    ] = None,
    isolation: Isolation = IsolationLevel.READ_COMMITTED,
    keys: Annotated[bool, typer.Option("--keys", help="Show keys.")] = False,
    headers: Annotated[bool, typer.Option("--headers", help="Show headers.")] = False,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Show timestamps.")] = False,
    offsets: Annotated[
        bool, typer.Option("--offsets", help="Show partitions and offsets.")
    ] = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    form: Annotated[
        Format | None,
        typer.Option(
            "--format",
            help="text: values as they are; hex: as hexadecimal digits; jsonl: a line of JSON for "
            "each record; json: one list of them.  [default: text]",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    """Print records: each value on a line, with tabs behind the columns that are asked for.

    Reads to the end of the log at the start, and further with --follow. Records of a transaction
    are shown once it commits. A note on standard error says if some wait for one. A group begins
    at its offsets, and at --from where it has none. Lines of JSON have every part of a record, and
    `txn produce --json-lines` reads them.

    \b
    Examples:
      txn consume orders --bootstrap kafka-1:9092
      txn consume orders --follow --from 2h-ago --timestamps --keys
      txn consume orders-3 --from -10                 the last ten offsets of a partition
      txn consume orders --group shop --max-records 5
      txn consume orders --json | jq .value
      txn consume orders --format hex --keys          bytes that are no text

    \b
    Exit codes: 0 done, also by Ctrl-C; 1 refused, or a group's offsets may not be committed. 2
    is wrong usage, no such topic, or no broker answers.
    """
    if follow and end is not None:
        raise ConfigError("--to says where to stop, --follow never does: give one of them")
    if as_json and form not in (None, Format.JSONL):
        raise ConfigError(f"--json is --format jsonl, not {form}: give one of them")
    form = Format.JSONL if as_json else form or Format.TEXT
    if follow and records_max is None and form is Format.JSON:
        raise ConfigError(
            "--format json is a list with an end, and --follow has none: give --format jsonl"
        )
    wanted = _Wanted(
        topics,
        start if start is not None else "latest" if follow else "earliest",
        None if follow else "latest" if end is None else end,
        group,
        is_start_given=start is not None,
        is_committed=isolation is IsolationLevel.READ_COMMITTED,
    )
    columns = Columns(timestamps=timestamps, offsets=offsets, keys=keys, headers=headers)
    chosen = cluster(bootstrap, command_config, settings)
    printing = _Printing(_texts_of(form, columns), records_max, is_list=form is Format.JSON)
    reader: StoredRecords | None = None
    held: Mapping[TopicPartition, int] = {}
    with sigterm_as_ctrl_c():
        try:
            with running_cluster(bootstrap, command_config, settings) as running:
                reader, held = _reader(running, chosen, wanted)
            if held and follow:
                print(_held_note(held, chosen, is_following=True), file=sys.stderr)
            try:
                with until_reader_closes():
                    printing.run(reader)
            finally:
                reader.close()
        except KeyboardInterrupt:
            if left := _uncommitted(reader, chosen, printing.in_hand):
                raise RetriableError(f"{printing.stopped()}. {left}") from None
            print(f"txn: {printing.stopped()}. {_next_run(group)}", file=sys.stderr)
        except TxnError as error:
            if left := _uncommitted(reader, chosen):
                error.add_note(left)
            raise
        else:
            if held and printing.is_at_end:
                print(_held_note(held, chosen), file=sys.stderr)
            if left := _uncommitted(reader, chosen):
                raise RetriableError(left)


def _held_note(
    held: "Mapping[TopicPartition, int]", chosen: Cluster, *, is_following: bool = False
) -> str:
    """Say that records wait behind open transactions."""
    (topic, index), offset = min(held.items())
    more = f", and of {counted(len(held) - 1, 'more partition')}" if len(held) > 1 else ""
    until = "are shown when it ends" if is_following else "are not shown"
    return (
        f"txn: the records of {topic}-{index} from offset {offset} on{more} wait for an open "
        f"transaction, and {until}. This command names it: txn explain "
        f"{shlex.quote(topic)} {chosen.options}".rstrip()
    )


def _next_run(group: str | None) -> str:
    if group is None:
        return "With --group NAME a later run goes on behind them"
    return f"Group {group!r} goes on behind them next time"


def _uncommitted(reader: "StoredRecords | None", chosen: Cluster, in_hand: int = 0) -> str:
    """The printed records whose offsets are not known to be committed, in a sentence."""
    if reader is None or reader.group_id is None or not (count := reader.uncommitted + in_hand):
        return ""
    if reader.refusal is not None:
        found = f"not committed: {reader.refusal}"
    else:
        found = f"not known to be committed: {reader.outage or 'there was no answer'}"
    look = f"txn groups describe {shlex.quote(reader.group_id)} {chosen.options}"
    return (
        f"The offsets of the last {counted(count, 'record')} are {found}. A later run prints again "
        f"the records that are lag there: {look}"
    )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The records to read, by the words of the command line; `end` is None with --follow."""

    topics: Sequence[str]
    start: str
    end: str | None
    group: str | None
    _: KW_ONLY
    is_start_given: bool
    is_committed: bool


def _reader(
    running: "RunningCluster", chosen: Cluster, wanted: _Wanted
) -> "tuple[StoredRecords, Mapping[TopicPartition, int]]":
    """Open the reader of some records.

    Returns:
        The reader, and the first offset that waits for an open transaction in each partition
        that is read to its end.

    Raises:
        ConfigError, RejectedError, RetriableError: they cannot be read.
    """
    from txn.access.librdkafka import librdkafka_settings
    from txn.admin.offset_specs import OffsetSpecKind, offsets_at, parse_offset_spec
    from txn.client.library_log import silence_unless_handled
    from txn.client.stored_records import StoredRecords
    from txn.clock import now_ms

    silence_unless_handled()
    at_ms, is_committed = now_ms(), wanted.is_committed
    start = parse_offset_spec(wanted.start, now_ms=at_ms)
    end = None if wanted.end is None else parse_offset_spec(wanted.end, now_ms=at_ms)
    if end is not None:
        _require_order(wanted, start, end)
    if wanted.group is None:
        named = [running.partitions(name) for name in wanted.topics]
    else:
        named = _of_group(running, wanted, wanted.group)
    partitions = list(dict.fromkeys(each for group in named for each in group))
    starts: Mapping[TopicPartition, int] = {}
    if wanted.group is None:  # before the ends: a log that grows would have them before its last 10
        starts = offsets_at(running, partitions, start, is_committed=is_committed)
        without = sorted(set(partitions) - starts.keys())
        if without:
            topic, index = without[0]
            raise RetriableError(
                f"no broker leads {topic}-{index} at the moment. Bring one of its replicas back"
            )
    ends: Mapping[TopicPartition, int] | None = None
    stop = end or parse_offset_spec("latest", now_ms=at_ms)
    # Before the ends of committed records, so that later records do not count as held back.
    is_to_end = stop.kind is OffsetSpecKind.LATEST and is_committed
    log_ends = offsets_at(running, partitions, stop, is_committed=False) if is_to_end else {}
    readable: Mapping[TopicPartition, int] = {}
    if end is not None or is_to_end:
        readable = offsets_at(running, partitions, stop, is_committed=is_committed)
    held = {
        each: readable[each]
        for each in log_ends
        if readable.get(each, log_ends[each]) < log_ends[each]
    }
    if end is not None:
        ends = readable
        lengths = [ends[each] - offset for each, offset in starts.items() if each in ends]
        if lengths and min(lengths) < 0 and max(lengths) <= 0:
            raise _reversed(wanted)
    reader = StoredRecords(
        {**librdkafka_settings(chosen.security), "bootstrap.servers": chosen.servers},
        is_committed=is_committed,
        starts=starts,
        ends=ends,
        group_id=wanted.group,
        topics=tuple(dict.fromkeys(wanted.topics)),
        default=wanted.start if wanted.group is not None else "error",
    )
    return reader, held


def _require_order(wanted: _Wanted, start: "OffsetSpec", end: "OffsetSpec") -> None:
    """Check that records may lie between two places. Raises ConfigError."""
    from txn.admin.offset_specs import OffsetSpecKind

    if end.kind is OffsetSpecKind.EARLIEST:
        raise ConfigError("--to earliest stops before the first record: give a later place")
    if (
        start.kind is OffsetSpecKind.LATEST and wanted.group is None
    ):  # a group is put there, and stays
        raise ConfigError(
            "--from latest begins at the end, where reading stops. --follow goes on with new "
            "records, and --from -10 shows the last ten"
        )
    if start.is_behind(end):
        raise _reversed(wanted)


def _reversed(wanted: _Wanted) -> ConfigError:
    return ConfigError(
        f"--from {wanted.start} lies behind --to {wanted.end}, so there is nothing between them. "
        "Exchange the two"
    )


def _of_group(
    running: "RunningCluster", wanted: _Wanted, group: str
) -> "list[list[TopicPartition]]":
    """The partitions of each topic that a group reads. Raises ConfigError, RejectedError."""
    if not group:
        raise ConfigError("--group is empty: name a group, or leave it out to join none")
    group.encode()  # librdkafka ends the process at a name that is no UTF-8
    if wanted.start not in ("earliest", "latest"):
        raise ConfigError(
            "a group begins at its committed offsets: --from is earliest or latest for "
            "partitions without one. `txn groups reset-offsets` moves a group"
        )
    known = running.topics()
    for name in wanted.topics:
        topic, _, number = name.rpartition("-")
        if name not in known and number.isdigit() and topic in known:
            raise ConfigError(
                f"a group shares out all partitions of a topic: give {topic}, not {name}. Without "
                "--group one partition is read"
            )
    running.require_topics(wanted.topics)
    partitions = [[(name, each) for each in running.topics()[name]] for name in wanted.topics]
    if wanted.is_start_given:
        committed = running.committed_offsets(group)
        if all(each in committed for of_topic in partitions for each in of_topic):
            print(
                f"txn: group {group!r} has an offset in each partition, and begins there: --from "
                f"{wanted.start} is for partitions without one. `txn groups reset-offsets` moves "
                "a group",
                file=sys.stderr,
            )
    return partitions


def _texts_of(form: Format, columns: Columns) -> Callable[[Record], bytes]:
    """The line of a record in a form."""
    if form in (Format.JSON, Format.JSONL):
        return as_json_line
    return partial(as_line, columns=columns, is_hex=form is Format.HEX)


class _Printing:
    """Prints records, and counts them."""

    def __init__(
        self, text_of: Callable[[Record], bytes], records_max: int | None, *, is_list: bool
    ) -> None:
        self._text_of = text_of
        self._left = records_max
        self._is_list = is_list
        self._count = 0
        self.in_hand = 0
        """Records that are being printed."""
        self.is_at_end = False
        """Every record up to the end was printed."""
        self._has_left_out = False  # a header

    def run(self, reader: "StoredRecords") -> None:
        """Print until the end, the last wanted record, or the loss of the output's reader."""
        if self._is_list:
            print_bytes(b"[\n")
        self._print_records(reader)
        if self._is_list:
            print_bytes(b"]\n")

    def _print_records(self, reader: "StoredRecords") -> None:
        outage = None
        for batch in reader.batches():
            shown = batch if self._left is None else batch[: self._left]
            lines = list(map(self._text, shown))
            if self._is_list:  # whole lines: a terminal's text is looked through line by line
                lines = [b"," + line if self._count + at else line for at, line in enumerate(lines)]
            self.in_hand = len(shown)
            self._count += len(shown)  # a signal may come as soon as they are printed
            print_bytes(b"".join(lines))
            reader.done(shown)
            self.in_hand = 0
            if self._left is not None:
                self._left -= len(shown)
            if self._left == 0 or (not batch and is_reader_gone()):
                return
            if reader.outage not in (None, outage):
                print(f"txn: waiting for the cluster: {reader.outage}", file=sys.stderr)
            outage = reader.outage
        self.is_at_end = True

    def stopped(self) -> str:
        """The end by a signal, in words."""
        return f"stopped after {counted(self._count, 'record')}"

    def _text(self, message: "Message") -> bytes:
        record, left_out = _record(message)
        if left_out and not self._has_left_out:
            self._has_left_out = True
            print(
                f"txn: {record.topic}-{record.partition} has a header at offset {record.offset} "
                "whose name is no UTF-8. Such headers are left out",
                file=sys.stderr,
            )
        return self._text_of(record)


def _record(message: "Message") -> tuple[Record, int]:
    """The record, and the number of headers left out."""
    from txn.client.headers import headers_of

    kind, timestamp_ms = message.timestamp()
    headers, left_out = headers_of(message)
    record = Record(
        message.key(),
        message.value(),
        cast(list[tuple[str, bytes | None]], headers),
        timestamp_ms if kind else None,
        message.topic() or "",
        message.partition(),
        message.offset(),
    )
    return record, left_out
