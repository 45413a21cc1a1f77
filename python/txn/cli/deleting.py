"""`txn topics delete-records`: delete the records before an offset from partitions."""

import json
import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from txn.cli.cluster import Bootstrap, CommandConfig, Setting, running_cluster
from txn.cli.confirming import confirm
from txn.cli.no_answer import one_line
from txn.cli.options import AsJson, PlanAlone, Yes
from txn.cli.output import print_json, print_lines, table
from txn.errors import ConfigError, TxnError
from txn.printable import printable

if TYPE_CHECKING:
    from txn.admin.records import Deletion
    from txn.identifiers import TopicPartition

PLACE: Final = re.compile(r"(?P<topic>[^:=]+):(?P<partition>[0-9]{1,9})=(?P<offset>.*)")
OFFSET: Final = re.compile(r"-1|[0-9]{1,18}")


def delete_records(
    places: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC:PARTITION=OFFSET",
            help="The first offset that stays; latest deletes all records.",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            *("--from-file", "--offset-json-file"),
            metavar="FILE",
            help='Format of Kafka: {"partitions": [{"topic": …, "partition": …, "offset": …}]}.',
        ),
    ] = None,
    yes: Yes = False,
    is_dry_run: PlanAlone = False,
    bootstrap: Bootstrap = None,
    command_config: CommandConfig = None,
    settings: Setting = None,
    as_json: AsJson = False,
) -> None:
    """Delete the records before an offset, for good. Shows the plan and asks first.

    Records with offsets from OFFSET on stay. The offset -1 means latest, as in Kafka. Records of a
    topic that is compacted alone are not deleted.

    \b
    Examples:
      txn topics delete-records orders:0=217 orders:1=latest --dry-run
      txn topics delete-records orders:0=217 --yes     in scripts
      txn topics delete-records --from-file offsets.json

    \b
    Exit codes: 0 done, 1 refused or answered with no, 2 wrong usage, no such topic, no broker
    answers, or no terminal to confirm at and no --yes.
    """
    if bool(places) == (from_file is not None):
        raise ConfigError("give the offsets in one way: TOPIC:PARTITION=OFFSET, or --from-file")
    wanted = _of_words(places or ()) if from_file is None else _of_file(from_file)
    from txn.admin.records import delete_records, planned_deletions

    outcomes: list[int | TxnError] = []
    with running_cluster(bootstrap, command_config, settings) as running:
        plan = planned_deletions(running, wanted)
        if not is_dry_run:
            if not yes:
                for line in ["To be deleted, the records before an offset:", *_planned(plan)]:
                    print(printable(line), file=sys.stderr)
            confirm("Delete them?", is_confirmed=yes)
            for each in plan:
                try:
                    outcomes.append(delete_records(running, each))
                except TxnError as error:
                    outcomes.append(error)
    if is_dry_run:
        if as_json:
            print_json([_data(each, None) for each in plan])
        else:
            print_lines(_planned(plan))
        return
    if as_json:
        print_json([_data(*each) for each in zip(plan, outcomes, strict=True)])
    elif done := [
        f"{_name(each)} begins at offset {outcome}"
        for each, outcome in zip(plan, outcomes, strict=True)
        if isinstance(outcome, int)
    ]:
        print_lines(done)
    refusals = [outcome for outcome in outcomes if isinstance(outcome, TxnError)]
    for refusal in refusals:
        print(f"txn: {one_line(refusal)}", file=sys.stderr)
    sys.exit(1 if refusals else 0)


def _of_words(words: Iterable[str]) -> dict["TopicPartition", int]:
    """Read TOPIC:PARTITION=OFFSET. Raises ConfigError."""
    found: dict[TopicPartition, int] = {}
    for word in words:
        place = PLACE.fullmatch(word)
        if place is None:
            raise ConfigError(f"{word!r} is no place: give TOPIC:PARTITION=OFFSET, as orders:0=217")
        offset = "-1" if place["offset"] == "latest" else place["offset"]
        if OFFSET.fullmatch(offset) is None:
            raise ConfigError(
                f"{word!r}: {place['offset']!r} is no offset: give a number, or latest"
            )
        _add(found, place["topic"], int(place["partition"]), int(offset))
    return found


def _of_file(path: Path) -> dict["TopicPartition", int]:
    """Read a file of kafka-delete-records. Raises ConfigError."""
    name = f"--from-file {str(path)!r}"
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{name} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is no JSON: {error}") from None
    entries = data.get("partitions") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not entries:
        raise ConfigError(f'{name} has no list "partitions"')
    if data.get("version", 1) != 1:
        raise ConfigError(f"{name} has version {data['version']!r}; known is 1")
    found: dict[TopicPartition, int] = {}
    for number, entry in enumerate(entries, 1):
        parts = entry if isinstance(entry, dict) else {}
        topic = parts.get("topic")
        index, offset = (_number(parts.get(part)) for part in ("partition", "offset"))
        if not isinstance(topic, str) or index < 0 or offset < -1:
            raise ConfigError(
                f"{name}: entry {number} of partitions needs a topic, a partition and an offset, "
                "which are a text and two numbers; the offset -1 stands for the end"
            )
        _add(found, topic, index, offset)
    return found


def _number(value: object) -> int:
    """A number of 64 bits; for anything else one that is no partition and no offset."""
    return value if type(value) is int and value < 2**63 else -2


def _add(found: dict["TopicPartition", int], topic: str, index: int, offset: int) -> None:
    if (topic, index) in found:
        raise ConfigError(f"{topic}:{index} is given twice: give it one offset")
    found[topic, index] = offset


def _name(deletion: "Deletion") -> str:
    topic, index = deletion.partition
    return f"{topic}-{index}"


def _planned(plan: Sequence["Deletion"]) -> list[str]:
    rows = [
        (_name(each), each.start_offset, each.offset, each.offset - each.start_offset)
        for each in plan
    ]
    return table(("partition", "begins at", "would begin at", "offsets to go"), rows)


def _data(deletion: "Deletion", outcome: int | TxnError | None) -> dict[str, Any]:
    """A partition as JSON; without an outcome nothing was done."""
    topic, index = deletion.partition
    error = one_line(outcome) if isinstance(outcome, TxnError) else None
    start = deletion.offset if error is None else deletion.start_offset
    return {
        "topic": topic,
        "partition": index,
        "log_start_offset_before": deletion.start_offset,
        "log_start_offset": outcome if isinstance(outcome, int) else start,
        "deleted": isinstance(outcome, int),
        "error": error,
    }
