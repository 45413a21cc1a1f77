"""`txn dead-letters`: list the letters of a topic, show one, and redrive them."""

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, cluster, running_cluster
from txn.cli.completing import complete_topics
from txn.cli.confirming import confirm
from txn.cli.options import AsJson, PlanAlone, Yes
from txn.cli.output import print_json, print_lines, table
from txn.cli.record_texts import json_of
from txn.counts import counted
from txn.errors import ConfigError
from txn.moments import moment

if TYPE_CHECKING:
    from txn.processor.redrive import Choice, DeadLetter, DeadLetters, Redriven

dead_letters_app = typer.Typer(
    help="List the dead letters of `txn.Processor`, and redrive them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MESSAGE_CHARS: Final = 60
_PLACE: Final = re.compile(r"(\d{1,10}):(\d{1,19})")

Topic = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="The topic of letters.", autocompletion=complete_topics),
]
Original = Annotated[
    str | None, typer.Option(metavar="TOPIC", help="Only letters from this original topic.")
]
Error = Annotated[
    str | None,
    typer.Option(
        metavar="TEXT",
        help="Only letters with this error: its class, its digest, or a part of its message.",
    ),
]


@dead_letters_app.command("list")
def list_letters(
    topic: Topic,
    original: Original = None,
    error: Error = None,
    records_max: Annotated[
        int, typer.Option("--max-records", min=1, help="The most letters to list.")
    ] = 1_000,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """List the letters that are not redriven, by partition and offset.

    \b
    Examples:
      txn dead-letters list orders-dead --bootstrap kafka-1:9092
      txn dead-letters list orders-dead --error ValueError --json

    \b
    Exit codes: 0 done. 1 refused. 2 is wrong usage, no such topic, or no broker answers.
    """
    choice = _choice(original, error, None)
    with _opened(topic, bootstrap, command_config, settings) as letters:
        found = list(islice(letters.letters(choice), records_max))
    if as_json:
        print_json([letter_data(each) for each in found])
    elif found:
        header = ("letter", "time", "original", "attempts", "error", "message")
        print_lines(table(header, map(_row, found), names=3, texts=2))
    else:
        print_lines(["no dead letter"])


@dead_letters_app.command()
def show(
    topic: Topic,
    place: Annotated[
        str, typer.Argument(metavar="PARTITION:OFFSET", help="The letter, as `list` names it.")
    ],
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Show one letter: its origin, its error, its key, value and headers.

    \b
    Examples:
      txn dead-letters show orders-dead 0:12
      txn dead-letters show orders-dead 0:12 --json | jq .value

    \b
    Exit codes: 0 done. 1 refused. 2 is wrong usage, no such letter, or no broker answers.
    """
    choice = _choice(None, None, place)
    with _opened(topic, bootstrap, command_config, settings) as letters:
        found = next(letters.letters(choice), None)
    if found is None:
        raise _no_letter(topic, place)
    if as_json:
        print_json(letter_data(found, is_whole=True))
    else:
        print_lines(letter_lines(found))


@dead_letters_app.command()
def redrive(
    topic: Topic,
    original: Original = None,
    error: Error = None,
    place: Annotated[
        str | None,
        typer.Option("--letter", metavar="PARTITION:OFFSET", help="Only this letter."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(metavar="TOPIC", help="Produce to this topic, not to the original ones."),
    ] = None,
    is_dry_run: PlanAlone = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Produce letters to their original topics, and commit that they are redriven.

    Records and offsets are in one transaction, so a redrive that is killed and repeated produces
    each letter exactly once. The offsets are those of group txn-dead-letters.

    \b
    Examples:
      txn dead-letters redrive orders-dead --dry-run
      txn dead-letters redrive orders-dead --error KeyError --yes
      txn dead-letters redrive orders-dead --letter 0:12

    \b
    Exit codes: 0 done. 1 refused, or not confirmed. 2 is wrong usage, no such topic or letter, or
    no broker answers.
    """
    choice = _choice(original, error, place)
    with _opened(topic, bootstrap, command_config, settings) as letters:
        planned = planned_counts(letters.letters(choice), to)
        if place is not None and not planned.total and not planned.unaddressed:
            raise _no_letter(topic, place)
        done = planned
        if not is_dry_run and planned.total:
            confirm(f"Redrive {_words(planned)}?", is_confirmed=yes)
            done = letters.redrive(choice, to=to)
    if as_json:
        print_json(
            {"redriven": done.counts, "unaddressed": done.unaddressed, "is_dry_run": is_dry_run}
        )
        return
    verb = "would be redriven" if is_dry_run else "redriven"
    print_lines([f"{verb}: {_words(done)}", *_unaddressed_lines(done)])


def planned_counts(letters: "Iterable[DeadLetter]", to: str | None) -> "Redriven":
    """Count the letters that a redrive would produce, by the topic that they would go to."""
    from txn.processor.redrive import Redriven

    planned = Redriven()
    for dead in letters:
        target = to or dead.letter.topic
        if target is None:
            planned.unaddressed += 1
        else:
            planned.counts[target] = planned.counts.get(target, 0) + 1
    return planned


def letter_data(dead: "DeadLetter", *, is_whole: bool = False) -> Mapping[str, Any]:
    """Return a letter as JSON has it; its value and headers if `is_whole`."""
    record, letter = dead.record, dead.letter
    data: dict[str, Any] = {
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "original": {
            "topic": letter.topic,
            "partition": letter.partition,
            "offset": letter.offset,
            "timestamp": letter.timestamp_ms,
        },
        "error": {
            "class": letter.error_class,
            "message": letter.error_message,
            "where": letter.error_where,
            "digest": letter.error_digest,
        },
        "attempts": letter.attempts,
        "group": letter.group,
        "key": json_of(record.key),
    }
    if is_whole:
        headers = [{"key": name, "value": json_of(value)} for name, value in record.headers]
        data |= {"value": json_of(record.value), "headers": headers}
    return data


def letter_lines(dead: "DeadLetter") -> list[str]:
    """Return a letter as lines of text."""
    record, letter = dead.record, dead.letter
    facts = [
        ("letter", f"{record.topic}-{record.partition} offset {record.offset}"),
        ("time", _moment(record.timestamp_ms)),
        ("original", _original(dead)),
        ("error", letter.error_class or "unknown"),
        ("message", letter.error_message or ""),
        ("where", letter.error_where or "unknown"),
        ("digest", letter.error_digest or "unknown"),
        ("attempts", _number(letter.attempts)),
        ("group", letter.group or "unknown"),
        ("key", _content(record.key)),
        ("value", _content(record.value)),
        *((f"header {name}", _content(value)) for name, value in record.headers),
    ]
    width = max(len(name) for name, _ in facts[:11])
    return [f"{name:{width}}  {text}" for name, text in facts]


def _opened(
    topic: str, bootstrap: str | None, config: Any, settings: list[str] | None
) -> "AbstractContextManager[DeadLetters]":
    """The letters of a topic of the cluster that the options name."""
    from txn.access.librdkafka import librdkafka_settings
    from txn.client.library_log import silence_unless_handled
    from txn.processor.redrive import GROUP_ID, DeadLetters

    silence_unless_handled()
    chosen = cluster(bootstrap, config, settings)
    with running_cluster(bootstrap, config, settings) as running:
        running.require_topics([topic])
        running.committed_offsets(GROUP_ID)  # librdkafka waits long for a user without the right
    way_in = {**librdkafka_settings(chosen.security), "bootstrap.servers": chosen.servers}
    return DeadLetters(way_in, topic)


def _choice(original: str | None, error: str | None, place: str | None) -> "Choice":
    from txn.processor.redrive import Choice

    return Choice(original, error, None if place is None else parse_place(place))


def parse_place(text: str) -> tuple[int, int]:
    """Read PARTITION:OFFSET. Raises ConfigError."""
    found = _PLACE.fullmatch(text)
    if found is None:
        raise ConfigError(f"{text!r} names no letter: give PARTITION:OFFSET, as 0:12")
    return int(found[1]), int(found[2])


def _no_letter(topic: str, place: str) -> ConfigError:
    return ConfigError(
        f"{topic!r} has no dead letter {place}, or it is redriven. `txn dead-letters list {topic}` "
        "shows those that are left"
    )


def _row(dead: "DeadLetter") -> tuple[str, ...]:
    letter = dead.letter
    message = letter.error_message or ""
    return (
        f"{dead.record.partition}:{dead.record.offset}",
        _moment(dead.record.timestamp_ms),
        _original(dead),
        _number(letter.attempts),
        (letter.error_class or "unknown").rpartition(".")[2],
        message if len(message) <= MESSAGE_CHARS else f"{message[:MESSAGE_CHARS]}…",
    )


def _original(dead: "DeadLetter") -> str:
    letter = dead.letter
    if letter.topic is None:
        return "unknown"
    return f"{letter.topic}-{_number(letter.partition)} offset {_number(letter.offset)}"


def _words(result: "Redriven") -> str:
    if not result.total:
        return "no dead letter"
    return ", ".join(
        f"{counted(count, 'letter')} to {topic}" for topic, count in sorted(result.counts.items())
    )


def _unaddressed_lines(result: "Redriven") -> list[str]:
    if not result.unaddressed:
        return []
    letters = counted(result.unaddressed, "letter")
    return [f"kept: {letters} without an original topic in the headers. Give --to TOPIC"]


def _moment(timestamp_ms: int | None) -> str:
    return "unknown" if timestamp_ms is None else moment(timestamp_ms)


def _number(number: int | None) -> str:
    return "?" if number is None else str(number)


def _content(content: bytes | None) -> str:
    return "null" if content is None else content.decode("utf-8", "backslashreplace")
