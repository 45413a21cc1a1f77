"""The largest arrays a client can send: for each array of each request, one with many items."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from txn.wire import shapes
from txn.wire.kio import load_request_schema
from txn.wire.shapes import Step, steps_of
from txn.wire.varint import unsigned_varint

TEXT = b"t"


class Filler(NamedTuple):
    """The values of a request's fields."""

    text: bytes
    number: int
    is_flexible: bool


class StepField(NamedTuple):
    """A step, and those of its structure or items."""

    step: Step
    inner: "tuple[StepField, ...]" = ()

    @property
    def is_array(self) -> bool:
        return self.step[0] in (shapes.ARRAY, shapes.NULLABLE_ARRAY)

    def arrays(self) -> "Iterator[StepField]":
        """The arrays in it, itself among them."""
        if self.is_array:
            yield self
        for field in self.inner:
            yield from field.arrays()


def _fields(steps: Sequence[Step]) -> tuple[StepField, ...]:
    found, at = [], 0
    while at < len(steps):
        kind, size = step = steps[at]
        at += 1
        if kind in (shapes.ARRAY, shapes.NULLABLE_ARRAY, shapes.NULLABLE):
            found.append(StepField(step, _fields(steps[at : at + size])))
            at += size
        else:
            found.append(StepField(step))
    return tuple(found)


def arrays_of(key: int, version: int) -> int:
    """Number of arrays of a request, with those within others."""
    fields = _fields(steps_of(load_request_schema(key, version)))
    return sum(1 for field in fields for _ in field.arrays())


def with_many(
    key: int, version: int, array: int, items: int, *, text: bytes = TEXT, number: int = 0
) -> bytes:
    """A body whose `array`-th array has so many small items, and the others one or none.

    Its strings are `text`, and its numbers `number`, or the largest that there is room for. The
    smallest numbers outside of arrays are truth values.
    """
    schema = load_request_schema(key, version)
    fields = _fields(steps_of(schema))
    target = [found for field in fields for found in field.arrays()][array]
    filler = Filler(text, number, schema.__flexible__)
    return b"".join(
        bytes([min(number, 1)])
        if field.step == (shapes.FIXED, 1)
        else _put(field, target, items, filler)
        for field in fields
    )


def _put(field: StepField, target: StepField, items: int, filler: Filler) -> bytes:
    is_flexible = filler.is_flexible
    (kind, size), inner = field.step, field.inner
    holds_target = any(found is target for found in field.arrays())

    def put_inner() -> bytes:
        return b"".join(_put(one, target, items, filler) for one in inner)

    def length(count: int, width: int) -> bytes:
        return unsigned_varint(count + 1) if is_flexible else count.to_bytes(width, "big")

    if field.is_array:
        count = items if field is target else int(holds_target)
        return length(count, 4) + (put_inner() * count if count else b"")
    match kind:
        case shapes.FIXED:
            return min(filler.number, (1 << 8 * size - 1) - 1).to_bytes(size, "big")
        case shapes.STRING | shapes.NULLABLE_STRING:
            return length(len(filler.text), 2) + filler.text
        case shapes.BYTES | shapes.NULLABLE_BYTES:
            return length(0, 4)
        case shapes.NULLABLE:
            return b"\1" + put_inner() if holds_target else b"\xff"
        case _:
            return b"\0"  # no tagged fields
