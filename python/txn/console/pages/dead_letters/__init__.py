"""Dead letters of `txn.Processor`: a list, one with its error, and the redrive of one or all."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

from txn.admin.cluster import RunningCluster
from txn.cli.dead_letters import letter_data, parse_place, planned_counts
from txn.client.library_log import silence_unless_handled
from txn.console.contents import Form, lines, preview
from txn.console.lists import part_of
from txn.console.site import Action, Context, Page, View, Visit
from txn.console.sources import Source
from txn.errors import ConfigError
from txn.processor.redrive import GROUP_ID, Choice, DeadLetters

if TYPE_CHECKING:
    from txn.processor.redrive import DeadLetter

LETTERS_MAX: Final = 1_000
"""The most letters that a page reads; `txn dead-letters list` has no such limit."""

NAMES: Final = ("dead", "dlq")
"""A topic with one of these in its name is offered."""


@dataclass(frozen=True, slots=True)
class RedrivePlan:
    """The letters that a page showed, to be redriven."""

    topic: str
    choice: Choice


def overview(visit: Visit, source: Source) -> Context:
    """The letters of a topic that are not redriven; without a topic, the topics to choose from."""
    cluster = _running(source)
    topic, original, error = visit.text("topic"), visit.text("original"), visit.text("error")
    asked = {"topic": topic, "original": original, "error": error}
    if not topic:
        names = [each for each in cluster.topics() if any(part in each for part in NAMES)]
        return {
            "title": "Dead letters",
            "topics": sorted(names),
            "asked": asked,
            "command": f"txn topics list {source.options}",
        }
    choice = Choice(original or None, error or None)
    with _opened(visit, cluster, topic) as letters:
        found = list(islice(letters.letters(choice), LETTERS_MAX + 1))
    shown = part_of(found[:LETTERS_MAX], visit.number("part", 1))
    return {
        "title": f"Dead letters of {topic}",
        "topics": None,
        "asked": asked,
        "shown": shown,
        "letters": [
            (each, letter_data(each), preview(each.record.key, Form.TEXT)) for each in shown.items
        ],
        "has_more": len(found) > LETTERS_MAX,
        "address": "/dead-letters?" + urlencode(asked),
        "redrive": "/dead-letters/redrive?" + urlencode(asked),
        "command": f"txn dead-letters list {quote(topic)}{_filters(choice)} {source.options}",
    }


def one(visit: Visit, source: Source) -> Context:
    """One letter: its origin, its error, its key and value."""
    cluster = _running(source)
    topic, place = visit.text("topic"), _place(visit)
    found = _letter(visit, cluster, topic, place)
    record = found.record
    name = f"{place[0]}:{place[1]}"
    return {
        "title": f"Dead letter {name} of {topic}",
        "topic": topic,
        "letter": found.letter,
        "record": record,
        "key": lines(record.key, Form.JSON),
        "value": lines(record.value, Form.JSON),
        "headers": [
            (preview(n.encode(), Form.TEXT), preview(v, Form.TEXT)) for n, v in record.headers
        ],
        "redrive": "/dead-letters/redrive?" + urlencode({"topic": topic, "letter": name}),
        "command": f"txn dead-letters show {quote(topic)} {name} {source.options}",
    }


def plan(visit: Visit, source: Source) -> Context:
    """The letters that a redrive would produce, by the topic that they would go to."""
    cluster = _running(source)
    topic, letter = visit.text("topic"), visit.text("letter")
    place = visit.parsed("letter", parse_place, "") if letter else None
    choice = Choice(visit.text("original") or None, visit.text("error") or None, place)
    with _opened(visit, cluster, topic) as letters:
        last: dict[int, int] = {}  # the plan has no letter that comes later
        planned = planned_counts(_noting_last(letters.letters(choice), last), None)
    may_write = visit.site.may_write and planned.total
    return {
        "title": f"Redrive dead letters of {topic}",
        "topic": topic,
        "counts": sorted(planned.counts.items()),
        "unaddressed": planned.unaddressed,
        "back": "/dead-letters?" + urlencode({"topic": topic}),
        "planned": visit.session.plans.keep(RedrivePlan(topic, replace(choice, last=last)))
        if may_write
        else None,
        "command": f"txn dead-letters redrive {quote(topic)}{_filters(choice)} {source.options}",
    }


def redrive(visit: Visit) -> str:
    """Redrive the letters of the plan that the page showed."""
    found = visit.planned(RedrivePlan)
    with (
        visit.session.sources.cluster() as cluster,
        _opened(visit, cluster, found.topic) as letters,
    ):
        letters.redrive(found.choice)
    return "/dead-letters?" + urlencode({"topic": found.topic})


def _noting_last(letters: "Iterable[DeadLetter]", last: dict[int, int]) -> "Iterator[DeadLetter]":
    """Pass letters on, and note the last offset of each partition."""
    for each in letters:
        last[each.record.partition] = each.record.offset
        yield each


def _opened(visit: Visit, cluster: RunningCluster, topic: str) -> DeadLetters:
    """The letters of a topic, read and redriven with the rights of the user.

    The cluster is asked for the offsets first: librdkafka waits long where the user may not know
    them, and raises no error before.
    """
    cluster.require_topics([topic])
    cluster.committed_offsets(GROUP_ID)
    silence_unless_handled()
    return DeadLetters(visit.session.sources.client_settings(), topic)


def _letter(
    visit: Visit, cluster: RunningCluster, topic: str, place: tuple[int, int]
) -> "DeadLetter":
    with _opened(visit, cluster, topic) as letters:
        found = next(letters.letters(Choice(place=place)), None)
    if found is None:
        raise ConfigError(
            f"{topic!r} has no dead letter {place[0]}:{place[1]}, or it is redriven. Choose one "
            "from the list"
        )
    return found


def _place(visit: Visit) -> tuple[int, int]:
    return visit.parsed("letter", parse_place, "")


def _filters(choice: Choice) -> str:
    options = ""
    if choice.original is not None:
        options += f" --original {quote(choice.original)}"
    if choice.error is not None:
        options += f" --error {quote(choice.error)}"
    if choice.place is not None:
        options += f" --letter {choice.place[0]}:{choice.place[1]}"
    return options


def _running(source: Source) -> RunningCluster:
    assert isinstance(source, RunningCluster), "the page needs brokers"
    return source


PAGE: Final = Page(
    "Dead letters",
    "/dead-letters",
    (
        ("/dead-letters", View("pages/dead_letters/overview.html", overview)),
        ("/dead-letters/one", View("pages/dead_letters/one.html", one)),
        ("/dead-letters/redrive", View("pages/dead_letters/redrive.html", plan)),
        ("/dead-letters/do/redrive", Action(redrive)),
    ),
    needs_brokers=True,
)
