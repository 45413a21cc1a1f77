"""The search of a topic as a page that grows while the log is read."""

import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import ExitStack
from threading import Lock, Thread
from typing import Final

from txn.cli.no_answer import one_line
from txn.cluster.facts import PartitionOffsets
from txn.console.contents import Form, preview
from txn.console.faults import understood
from txn.console.pages.topics.browse import no_leader, number_of, offsets_of, place_in
from txn.console.pages.topics.search import (
    FOUND_MAX,
    Start,
    Step,
    Wanted,
    steps_of,
    wanted_text,
)
from txn.console.site import Visit
from txn.console.sources import Source
from txn.errors import ConfigError, CorruptLogError, RejectedError, RetriableError, TxnError
from txn.explain.questions import partitions_of
from txn.identifiers import TopicPartition

FIELDS: Final = ("key", "value", "header", "id", "partition", "from")
"""The parameters of a search; one of the first four asks for it."""

HOLE: Final = "<!-- the matches -->"
PROGRESS_S: Final = 2.0
"""Seconds between two lines about a search that finds nothing."""


def begin(visit: Visit) -> AsyncIterator[bytes]:
    """Begin a search; its pieces are HTML.

    Raises:
        ConfigError: the topic, the place or a text to find is none.
        RejectedError, RetriableError: the cluster does not answer with the ends of the topic.
    """
    fields = {name: visit.raw(name) for name in FIELDS}
    is_asked = any(fields[name] for name in FIELDS[:4])
    stack = ExitStack()
    try:
        source = stack.enter_context(visit.session.sources.borrowed())
        topic = visit.path("topic")
        wanted = _wanted(visit, source)
        starts = _starts(visit, source, topic) if is_asked else []
        context = {
            "title": f"Search in {topic}",
            "page": next(page for page in visit.site.pages if page.path == "/topics"),
            "topic": topic,
            "fields": fields,
            "partitions": list(source.topics()[topic]),
            "is_asked": is_asked,
            "visit": visit,
            "command": None,
        }
        text = visit.site.text("pages/topics/search.html", context, visit.session)
    except BaseException:
        stack.close()
        raise
    head, _, tail = text.partition(HOLE)
    return _pieces(visit, stack, steps_of(source, starts, wanted), (head, tail))


async def _pieces(
    visit: Visit, stack: ExitStack, steps: Generator[Step, None, None], frame: tuple[str, str]
) -> AsyncIterator[bytes]:
    """The frame of the page, with the matches of each step in its middle, if it has a place."""
    head, tail = frame
    found = 0
    told = time.monotonic()
    context = {"preview": preview, "form": Form.TEXT}
    reading = _Reading(stack, steps)
    try:
        yield head.encode()
        if not tail:  # nothing is looked for
            return
        while (step := await visit.session.threads.run(reading.next)) is not None:
            if visit.site.stopping.is_set() or visit.session.has_ended:
                return
            found += len(step.rows)
            if step.rows or step.error is not None or time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                error = None if step.error is None else one_line(step.error)
                yield _part(visit, context | {"step": step, "error": error})
        yield _part(visit, context | {"found": found, "failed": reading.failures, "step": None})
        yield tail.encode()
    except RetriableError:  # the console stops, and no thread is waited for
        return
    finally:  # also if the browser has left, when nothing can be awaited any more
        Thread(target=reading.close, daemon=True).start()


class _Reading:
    """The steps of a search and the source that they read, for one thread at a time."""

    def __init__(self, stack: ExitStack, steps: Generator[Step, None, None]) -> None:
        self._stack = stack
        self._steps = steps
        self._lock = Lock()
        self._error: TxnError | None = None
        self.failures = 0
        """Number of partitions that were not read to their end."""

    def next(self) -> Step | None:
        """Read on; None: the search has ended."""
        with self._lock:
            step = next(self._steps, None)
        if step is not None and step.error is not None:
            self.failures += 1
            self._error = step.error
        return step

    def close(self) -> None:
        """Give the source back, once a step that is under way has ended."""
        with self._lock:
            self._steps.close()
            if self._error is None:
                self._stack.close()
            else:  # a source that met an error is not kept
                self._stack.__exit__(type(self._error), self._error, None)


def _part(visit: Visit, context: dict[str, object]) -> bytes:
    given = {"most": FOUND_MAX} | context
    return visit.site.text("pages/topics/matches.html", given, visit.session).encode()


def _wanted(visit: Visit, source: Source) -> Wanted:
    key, value, header = (_bytes_of(visit, name) for name in ("key", "value", "header"))
    producer_id = None
    transactional_id = visit.raw("id")
    if transactional_id:
        owner = source.owner(transactional_id)
        if owner is None:
            raise ConfigError(
                f"no coordinator knows transactional id {transactional_id!r}. The page "
                "Transactions lists all ids"
            )
        producer_id = owner.producer_id
    return Wanted(key, value, header, producer_id)


def _bytes_of(visit: Visit, name: str) -> bytes | None:
    with understood(name):
        return wanted_text(visit.raw(name))


def _starts(visit: Visit, source: Source, topic: str) -> list[Start]:
    spec = place_in(visit, source, "earliest")
    if visit.text("partition"):
        index = visit.parsed("partition", lambda text: number_of(text, "partition"), "")
        places = partitions_of(source, topic, index)
    else:
        places = _all(source, topic)
    ends, damaged = _ends(source, places)
    first = offsets_of(source, ends, spec)
    return [
        Start(place, first[place], ends[place].end_offset)
        if place in ends
        else Start(place, error=damaged.get(place) or no_leader(place))
        for place in places
    ]


def _ends(
    source: Source, places: Sequence[TopicPartition]
) -> tuple[dict[TopicPartition, PartitionOffsets], dict[TopicPartition, TxnError]]:
    """The ends of partitions, and the errors of some. One without a leader has neither."""
    try:
        return dict(source.ends(places)), {}
    except (RejectedError, CorruptLogError):
        if len(places) == 1:
            raise
    found: dict[TopicPartition, PartitionOffsets] = {}
    damaged: dict[TopicPartition, TxnError] = {}
    for place in places:  # one that cannot be asked keeps the others away from the answer
        try:
            found |= source.ends([place])
        except (RejectedError, CorruptLogError) as error:
            damaged[place] = error
    return found, damaged


def _all(source: Source, topic: str) -> list[TopicPartition]:
    known = source.topics().get(topic)
    return partitions_of(source, topic, None) if known is None else [(topic, n) for n in known]
