"""The records of a partition from a place on, one record, and the bytes of a part of it."""

from collections.abc import Mapping
from shlex import quote
from typing import Final

from txn.admin.cluster import RunningCluster
from txn.admin.offset_specs import (
    OFFSET_MAX,
    OffsetSpec,
    OffsetSpecKind,
    parse_offset_spec,
)
from txn.cluster.facts import PartitionOffsets
from txn.console.contents import Form, lines, preview
from txn.console.pages.topics.records import PAGE_RECORDS, Row, names_of, page_of
from txn.console.site import Context, Visit
from txn.console.sources import Source
from txn.errors import ConfigError, RetriableError
from txn.explain.questions import partitions_of
from txn.identifiers import TopicPartition

VIEWS: Final = {
    "both": "The log beside the reader",
    "log": "The log alone",
    "reader": "The reader alone",
}
BYTES_FORMS: Final = [Form.TEXT, Form.JSON, Form.HEX]
DIGITS_MAX: Final = len(str(OFFSET_MAX))
"""The most digits of a number that is read: the time for more grows with their square."""

DEFAULT_PLACE: Final = f"-{PAGE_RECORDS}"


def records(visit: Visit, source: Source) -> Context:
    """A page of records; `from` is any place that `txn consume --from` takes."""
    place = _partition_of(visit, source)
    view = visit.chosen("view", list(VIEWS))
    form = Form(visit.chosen("as", [each.value for each in BYTES_FORMS]))
    wanted = visit.text("from") or DEFAULT_PLACE
    spec = place_in(visit, source, DEFAULT_PLACE)
    ends = ends_of(source, place)
    first = offsets_of(source, {place: ends}, spec)[place]
    page = page_of(source, place, first, ends)
    rows = [row for row in page.rows if view != "reader" or row.is_seen(ends)]
    name = f"{place[0]}-{place[1]}"
    return {
        "title": name,
        "partition": place,
        "ends": ends,
        "rows": rows,
        "names": names_of(source, rows),
        "view": view,
        "views": VIEWS,
        "form": form,
        "forms": BYTES_FORMS,
        "wanted": wanted,
        "first": first,
        "previous": max(first - PAGE_RECORDS, ends.log_start_offset)
        if first > ends.log_start_offset
        else None,
        "next": page.next_offset,
        "preview": preview,
        "command": f"txn consume {name} --from {quote(wanted)} --offsets --keys {source.options}"
        if source.is_running
        else f"txn log dump {source.options.removeprefix('--data ')}/{name}",
    }


def record(visit: Visit, source: Source) -> Context:
    """One record, whole up to a limit."""
    place = _partition_of(visit, source)
    schemas = visit.site.schemas
    forms = BYTES_FORMS if schemas is None else list(Form)
    default = Form.JSON if schemas is None else Form.SCHEMA
    names = sorted((each.value for each in forms), key=lambda name: name != default)
    form = Form(visit.chosen("as", names))
    header_form = Form.TEXT if form is Form.SCHEMA else form
    ends = ends_of(source, place)
    row = _row_at(visit, source, place, ends)
    assert row.record is not None, "markers have no page"
    given = row.record.key, row.record.value
    if form is Form.SCHEMA and schemas is not None:
        key, value = schemas.lines(place[0], *given)
    else:
        key, value = (lines(each, form) for each in given)
    return {
        "title": f"{place[0]}-{place[1]} offset {row.offset}",
        "partition": place,
        "ends": ends,
        "row": row,
        "name": names_of(source, [row]).get(row.producer_id),
        "form": form,
        "forms": forms,
        "key": key,
        "value": value,
        "headers": [
            (preview(name, Form.TEXT), preview(value, header_form))
            for name, value in row.record.headers
        ],
        "command": f"txn consume {place[0]}-{place[1]} --from {row.offset} --max-records 1 "
        f"{source.options}"
        if source.is_running
        else None,
    }


def download(visit: Visit, source: Source) -> tuple[str, bytes]:
    """The name of a file, and the bytes of a record's key or value for it."""
    place = _partition_of(visit, source)
    part = visit.path("part")
    if part not in ("key", "value"):
        raise ConfigError(f"a record has no part {part!r}. Take its key or its value")
    row = _row_at(visit, source, place, ends_of(source, place))
    assert row.record is not None, "markers have no page"
    content = row.record.key if part == "key" else row.record.value
    return f"{place[0]}-{place[1]}-{row.offset}.{part}", content or b""


def offsets_of(
    source: Source, ends: Mapping[TopicPartition, PartitionOffsets], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    """The offset of a place in each log, within the log."""
    young: Mapping[TopicPartition, int | None] = {}
    if spec.kind is OffsetSpecKind.TIME:
        if isinstance(source, RunningCluster):
            young = source.offsets(ends.keys(), spec.value, is_committed=False)
        else:
            young = {place: source.offset_at(place, spec.value) for place in ends}
    offsets = {}
    for place, each in ends.items():
        found = young.get(place)
        offset = {
            OffsetSpecKind.EARLIEST: each.log_start_offset,
            OffsetSpecKind.LATEST: each.end_offset,
            OffsetSpecKind.BEFORE_END: each.end_offset - spec.value,
            OffsetSpecKind.OFFSET: spec.value,
            OffsetSpecKind.TIME: each.end_offset if found is None or found < 0 else found,
        }[spec.kind]
        offsets[place] = min(max(offset, each.log_start_offset), each.end_offset)
    return offsets


def ends_of(source: Source, place: TopicPartition) -> PartitionOffsets:
    """The ends of a partition. Raises RetriableError: no broker leads it."""
    found = source.ends([place]).get(place)
    if found is None:
        raise no_leader(place)
    return found


def no_leader(place: TopicPartition) -> RetriableError:
    """The error about a partition that no broker leads."""
    return RetriableError(
        f"no broker leads {place[0]}-{place[1]} at the moment. Bring one of its replicas back"
    )


def place_in(visit: Visit, source: Source, default: str) -> OffsetSpec:
    """The place of parameter `from`: any that `txn consume --from` takes."""
    now_ms = source.now_ms()
    return visit.parsed("from", lambda text: parse_offset_spec(text, now_ms=now_ms), default)


def number_of(text: str, noun: str) -> int:
    """A number from an address. Raises ConfigError: it is none that Kafka has."""
    is_number = text.isascii() and text.isdigit() and len(text) <= DIGITS_MAX
    if not is_number or int(text) > OFFSET_MAX:
        shown = text if len(text) <= DIGITS_MAX else f"{text[:DIGITS_MAX]}…"
        raise ConfigError(f"{shown!r} is no {noun}. Give a number from 0 to {OFFSET_MAX}")
    return int(text)


def _partition_of(visit: Visit, source: Source) -> TopicPartition:
    (place,) = partitions_of(
        source, visit.path("topic"), number_of(visit.path("index"), "partition")
    )
    return place


def _row_at(visit: Visit, source: Source, place: TopicPartition, ends: PartitionOffsets) -> Row:
    offset = number_of(visit.path("offset"), "offset")
    name = f"{place[0]}-{place[1]}"
    if not ends.log_start_offset <= offset < ends.end_offset:
        has = f"has offsets {ends.log_start_offset} to {ends.end_offset - 1}"
        is_empty = ends.log_start_offset == ends.end_offset
        raise ConfigError(
            f"{name} has no record at offset {offset}: its log {'is empty' if is_empty else has}"
        )
    page = page_of(source, place, offset, ends)
    for row in page.rows:
        if row.offset == offset and row.record is not None:
            return row
    raise ConfigError(
        f"{name} has no record at offset {offset}. It may be a marker, or "
        "compaction or retention has removed it"
    )
