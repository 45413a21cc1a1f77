"""The search of a topic as a page that grows while the log is read."""

from collections.abc import AsyncIterator, Generator
from contextlib import ExitStack
from typing import Final

from starlette.concurrency import run_in_threadpool

from txn.cli.no_answer import one_line
from txn.console.pages.topics.browse import ends_of, number_of, offset_of
from txn.console.pages.topics.contents import Form, preview
from txn.console.pages.topics.search import FOUND_MAX, Step, Wanted, steps_of, wanted_text
from txn.console.site import Visit
from txn.console.sources import Source
from txn.errors import ConfigError, TxnError
from txn.explain.questions import partitions_of
from txn.identifiers import TopicPartition

HOLE: Final = "<!-- the matches -->"


def begin(visit: Visit) -> AsyncIterator[bytes]:
    """Begin a search; its pieces are HTML.

    Raises:
        ConfigError: the topic, the place or a text to find is none.
        RejectedError, RetriableError: the cluster does not answer with the ends of the topic.
    """
    query = visit.query
    fields = {
        name: query.get(name, "") for name in ("key", "value", "header", "id", "partition", "from")
    }
    is_asked = any(fields[name] for name in ("key", "value", "header", "id"))
    stack = ExitStack()
    try:
        source = stack.enter_context(visit.session.sources.borrowed())
        topic = visit.path("topic")
        wanted = _wanted(source, fields)
        starts = _starts(source, topic, fields) if is_asked else []
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
    """The frame of the page, with the matches of each step in its middle."""
    head, tail = frame
    found = 0
    context = {"preview": preview, "form": Form.TEXT, "found": 0, "error": None, "step": None}
    try:
        yield head.encode()
        while found < FOUND_MAX:
            if visit.site.stopping.is_set() or visit.session.has_ended:
                return
            try:
                step = await run_in_threadpool(next, steps, None)
            except TxnError as error:
                yield _part(visit, context | {"error": one_line(error)})
                break
            if step is None:
                break
            found += len(step.rows)
            yield _part(visit, context | {"step": step})
        yield _part(visit, context | {"found": found, "most": FOUND_MAX, "is_end": True})
        yield tail.encode()
    finally:  # also if the browser has left, when nothing can be awaited any more
        steps.close()
        stack.close()


def _part(visit: Visit, context: dict[str, object]) -> bytes:
    given = {"is_end": False, "most": FOUND_MAX} | context
    return visit.site.text("pages/topics/matches.html", given, visit.session).encode()


def _wanted(source: Source, fields: dict[str, str]) -> Wanted:
    producer_id = None
    if fields["id"]:
        owner = source.owner(fields["id"])
        if owner is None:
            raise ConfigError(
                f"no coordinator knows transactional id {fields['id']!r}. The page Transactions "
                "lists all ids"
            )
        producer_id = owner.producer_id
    return Wanted(
        wanted_text(fields["key"]),
        wanted_text(fields["value"]),
        wanted_text(fields["header"]),
        producer_id,
    )


def _starts(
    source: Source, topic: str, fields: dict[str, str]
) -> list[tuple[TopicPartition, int, int]]:
    index = fields["partition"]
    places = (
        partitions_of(source, topic, number_of(index, "partition"))
        if index
        else _all(source, topic)
    )
    starts = []
    for place in places:
        ends = ends_of(source, place)
        first = offset_of(source, place, ends, fields["from"] or "earliest")
        starts.append((place, first, ends.end_offset))
    return starts


def _all(source: Source, topic: str) -> list[TopicPartition]:
    known = source.topics().get(topic)
    return partitions_of(source, topic, None) if known is None else [(topic, n) for n in known]
