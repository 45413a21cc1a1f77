"""`txn produce`: lines, files or lines of JSON become records, in one transaction if wished."""

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from txn.cli import UnwritableError
from txn.cli.cluster import (
    Bootstrap,
    Cluster,
    CommandConfig,
    Setting,
    cluster,
    running_cluster,
)
from txn.cli.completing import complete_topics
from txn.cli.no_answer import exit_if_unreachable
from txn.cli.options import AsJson
from txn.cli.output import print_json, print_lines
from txn.cli.record_texts import Record, record_of
from txn.cli.stopping import sigterm_as_ctrl_c
from txn.counts import counted
from txn.errors import ConfigError, InDoubtError, TxnError
from txn.moments import parse_duration

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, Message

    from txn.client.transaction import BlockResult

STDIN: Final = "-"

TIMEOUT_MS_MIN: Final = 1_000
TIMEOUT_MS_MAX: Final = 2**31 - 1
"""The limits of librdkafka; most clusters have a smaller one."""

ALWAYS: Final = {"message.max.bytes": "1000000000"}
"""The cluster alone limits the size of a record."""


class Compression(StrEnum):
    """Kafka's names of compressions."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


def produce(
    topic: Annotated[
        str,
        typer.Argument(metavar="TOPIC", help="An existing topic.", autocompletion=complete_topics),
    ],
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Files; - is standard input. [default: -]"),
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option(
            "--json-lines", help="Lines are records in JSON, as `txn consume --json` prints them."
        ),
    ] = False,
    whole: Annotated[
        bool, typer.Option("--whole", help="Each file is one record, not its lines.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="The key of every record.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option(
            "--key-separator", "-K", help="This separates the key from the value in each line."
        ),
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A header of every record; may be given again."),
    ] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="[default: by the key]")] = None,
    keep_partitions: Annotated[
        bool,
        typer.Option(
            "--keep-partitions", help="With --json-lines: write into the same partitions."
        ),
    ] = False,
    compression: Annotated[
        Compression, typer.Option(help="The codec of the batches.")
    ] = Compression.NONE,
    transactional_id: Annotated[
        str | None,
        typer.Option(help="Write all records in one transaction, under this name."),
    ] = None,
    transaction_timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="The time after which the cluster aborts the transaction."
        ),
    ] = "60s",
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Write records: each line of the input is one.

    Every record is stored once, and the command ends when all are. With --transactional-id all of
    them are seen or none: Ctrl-C, SIGTERM or a faulty line abort the transaction. The id fences
    another `txn produce` that still runs under it.

    \b
    Examples:
      seq 1000 | txn produce orders --bootstrap kafka-1:9092
      txn produce orders -K : < keyed-lines.txt
      txn produce orders day-1.jsonl day-2.jsonl --json-lines --transactional-id loader
      txn produce pictures --whole cat.png dog.png
      txn consume orders --json | txn produce copies --json-lines --transactional-id copy

    A commit without an answer may have happened: look with `txn transactions describe` before you
    run the command again.

    \b
    Exit codes: 0 all are stored, also if the output cannot be written; 1 refused, in doubt, or
    stopped by a signal. 2 is wrong usage, no such topic, or no broker answers.
    """
    if whole and (json_lines or key_separator is not None):
        raise ConfigError("--whole makes one record of a file: it has no lines to read")
    if key_separator == "":
        raise ConfigError("--key-separator is empty: give the text between key and value")
    if key is not None and key_separator is not None:
        raise ConfigError("--key is the key of all records, --key-separator that of each: give one")
    source = _Source(
        files or [STDIN],
        _reading(json_lines=json_lines, whole=whole, key_separator=key_separator),
        _Fixed(
            None if key is None else os.fsencode(key),
            [_header(text) for text in header or ()],
            partition,
            keeps_partitions=keep_partitions,
        ),
    )
    (transactional_id or "").encode()  # librdkafka has no error for a name that is no UTF-8
    timeout_ms = parse_duration(transaction_timeout)
    if not TIMEOUT_MS_MIN <= timeout_ms <= TIMEOUT_MS_MAX:
        raise ConfigError(f"--transaction-timeout {transaction_timeout}: give 1s to 24d")
    chosen = cluster(bootstrap, command_config, settings)
    stored = _Stored(topic, chosen.options)
    with sigterm_as_ctrl_c():
        from txn.admin.cluster import no_partition

        try:
            with running_cluster(bootstrap, command_config, settings) as running:
                running.require_topics([topic])
                count = len(running.topics()[topic])
                if partition is not None and partition >= count:
                    raise ConfigError(no_partition(topic, partition, count))
            with exit_if_unreachable():
                more = {"compression.type": compression.value, **ALWAYS}
                if transactional_id is not None:
                    more["transaction.timeout.ms"] = str(timeout_ms)
                _write(chosen, stored, source, transactional_id, more)
        except KeyboardInterrupt:
            print(f"txn: {stored.stopped(transactional_id)}", file=sys.stderr)
            sys.exit(1)
    try:
        if as_json:
            print_json(stored.as_data(transactional_id))
        else:
            print_lines(stored.lines(transactional_id))
    except UnwritableError as error:
        told = f"All is stored, do not repeat it: {next(stored.lines(transactional_id))}"
        print(f"txn: cannot write the output: {error}. {told}", file=sys.stderr)


def _write(
    chosen: Cluster,
    stored: "_Stored",
    source: "_Source",
    transactional_id: str | None,
    more: dict[str, str],
) -> None:
    """Write the records of a source.

    Raises:
        ConfigError: a line is no record, or a file cannot be read.
        InDoubtError: the commit had no answer.
        TxnError: the cluster refuses; of a transaction nothing is stored then. Without one a note
            has the number of records that are stored all the same.
    """
    from txn.access.librdkafka import librdkafka_settings
    from txn.cli.refused_batches import SETTINGS, RefusedBatches
    from txn.client import Producer
    from txn.client.library_log import silence_unless_handled
    from txn.client.transaction import BlockResult

    silence_unless_handled()
    way_in = {**librdkafka_settings(chosen.security), "bootstrap.servers": chosen.servers}
    producer = Producer(
        {
            **way_in,
            **more,
            **SETTINGS,
            "logger": RefusedBatches(),
            "on_delivery": stored.note,
        },
        transactional_id=transactional_id,
        engine="confluent-kafka",  # these properties and this callback are librdkafka's
    )
    if transactional_id is None:
        try:
            with producer:
                _send(producer.produce, stored, source)
        except TxnError as error:
            if stored.count:
                error.add_note(stored.note_before_error())
            raise
        return
    with producer:
        transaction = producer.transaction()
        try:
            with transaction:
                _send(transaction.produce, stored, source)
        except InDoubtError:
            raise InDoubtError(stored.doubt(transactional_id)) from None
        finally:
            stored.result = transaction.result or BlockResult.IN_DOUBT


def _send(send: Callable[..., None], stored: "_Stored", source: "_Source") -> None:
    for record in source.records():
        stored.read += 1
        send(
            stored.topic,
            record.value,
            record.key,
            headers=list(record.headers) or None,
            partition=record.partition,
            timestamp=record.timestamp_ms,
        )


# ---------------------------------------------------------------- input


Reading = Callable[[BinaryIO, str], Iterator[Record]]
"""Makes records of a file and its name."""


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The parts of every record that options give."""

    key: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    partition: int | None
    _: KW_ONLY
    keeps_partitions: bool

    def added_to(self, record: Record) -> Record:
        """Return a record with these parts."""
        own = record.partition if self.keeps_partitions else None
        if self.key is None and not self.headers and self.partition is None:
            return record if own == record.partition else replace(record, partition=own)
        return replace(
            record,
            key=record.key if self.key is None else self.key,
            headers=[*record.headers, *self.headers],
            partition=own if self.partition is None else self.partition,
        )


@dataclass(frozen=True, slots=True)
class _Source:
    """The records of some files; `-` is standard input."""

    files: Sequence[str]
    reading: Reading
    fixed: _Fixed

    def records(self) -> Iterator[Record]:
        """Read. Raises ConfigError: a file cannot be read, or has a faulty line."""
        for name in self.files:
            try:
                if name == STDIN:
                    self._print_terminal_hint()
                    yield from map(self.fixed.added_to, self.reading(sys.stdin.buffer, "stdin"))
                    continue
                with Path(name).open("rb") as file:
                    yield from map(self.fixed.added_to, self.reading(file, name))
            except OSError as error:
                raise ConfigError(f"{name!r} cannot be read: {error.strerror}") from None

    def _print_terminal_hint(self) -> None:
        if sys.stdin.isatty():
            print("Each line becomes a record. Ctrl-D ends.", file=sys.stderr)


def _reading(*, json_lines: bool, whole: bool, key_separator: str | None) -> Reading:
    if whole:
        return lambda file, _: iter([Record(None, file.read())])
    if json_lines:
        return _json_records
    separator = None if key_separator is None else os.fsencode(key_separator)
    return partial(_line_records, separator)


def _line_records(separator: bytes | None, file: BinaryIO, name: str) -> Iterator[Record]:
    for number, line in _lines(file):
        key, found, value = (None, b"-", line) if separator is None else line.partition(separator)
        if not found:
            raise ConfigError(
                f"line {number} of {name} has no {(separator or b'').decode()!r} behind a key"
            )
        yield Record(key, value)


def _json_records(file: BinaryIO, name: str) -> Iterator[Record]:
    for number, line in _lines(file):
        if line.strip():
            text = line.decode("utf-8", "surrogateescape")
            yield record_of(text, f"line {number} of {name}")


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(file, 1):
        yield number, line.removesuffix(b"\n").removesuffix(b"\r")


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(f"{text!r} is no header: give NAME=VALUE")
    name.encode()  # the name of a header is text, its value is bytes
    return name, os.fsencode(value)


# ---------------------------------------------------------------- result


@dataclass(slots=True)
class _Stored:
    """The stored records of each partition: their number, first and last offset."""

    topic: str
    cluster_options: str
    result: "BlockResult | None" = None
    """The result of the transaction; None before its end, or without one."""
    read: int = 0
    """The number of records that were read."""
    partitions: dict[int, list[int]] = field(default_factory=dict)

    def note(self, error: "KafkaError | None", message: "Message") -> None:
        """Handle a delivery report."""
        if error is not None:
            return
        offset = int(message.offset() or 0)
        known = self.partitions.setdefault(int(message.partition() or 0), [0, offset, offset])
        known[0] += 1
        known[1] = min(known[1], offset)
        known[2] = max(known[2], offset)

    @property
    def count(self) -> int:
        """The number of records."""
        return sum(known[0] for known in self.partitions.values())

    def as_data(self, transactional_id: str | None) -> dict[str, Any]:
        """The result as a JSON object."""
        return {
            "topic": self.topic,
            "records": self.count,
            "transactional_id": transactional_id,
            "partitions": [
                {
                    "partition": index,
                    "records": count,
                    "first_offset": first,
                    "last_offset": last,
                }
                for index, (count, first, last) in sorted(self.partitions.items())
            ],
        }

    def lines(self, transactional_id: str | None) -> Iterator[str]:
        """The result as text."""
        how = "" if transactional_id is None else f", in one transaction of {transactional_id!r}"
        yield f"{counted(self.count, 'record')} in {self.topic}{how}"
        for index, (count, first, last) in sorted(self.partitions.items()):
            yield f"  {self.topic}-{index}: {counted(count, 'record')}, offsets {first} to {last}"

    def note_before_error(self) -> str:
        """The records before an error, without a transaction, in a sentence."""
        if self.count == self.read:
            return f"Stored before it: {counted(self.count, 'record')}"
        return f"Of {self._known()}"

    def stopped(self, transactional_id: str | None) -> str:
        """The end by a signal, in a sentence."""
        if transactional_id is None:
            if self.count == self.read:
                return f"stopped: {counted(self.count, 'record')} before that are stored"
            return f"stopped: of {self._known()}"
        from txn.client.transaction import BlockResult

        if self.result is BlockResult.COMMITTED:
            return f"stopped after the commit: {counted(self.count, 'record')} are stored"
        if self.result is BlockResult.IN_DOUBT:
            return f"stopped: {self.doubt(transactional_id)}"
        if self.result is BlockResult.FENCED:
            return (
                f"stopped: the producer of {transactional_id!r} lost its place or could not abort, "
                f"so the cluster ends its transaction. {self._advice(transactional_id)}"
            )
        return (
            f"stopped: the transaction of {transactional_id!r} is aborted, and no reader sees a "
            "record of it. Run the command again"
        )

    def _known(self) -> str:
        return f"{counted(self.read, 'record')} that were read, {self.count} are known to be stored"

    def doubt(self, transactional_id: str) -> str:
        """A commit without an answer, in a sentence."""
        return (
            f"the commit of {transactional_id!r} had no answer, so {counted(self.count, 'record')} "
            f"may be stored. {self._advice(transactional_id)}"
        )

    def _advice(self, transactional_id: str) -> str:
        return (
            "Run the command again only if it was aborted: "
            f"txn transactions describe {shlex.quote(transactional_id)} {self.cluster_options}"
        )
