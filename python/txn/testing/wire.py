"""Frames of the Kafka protocol as the proxy of a test sees them.

A request is read as far as its header; its body is decoded when somebody asks for it, by the
schemas of kio. `Request.describe` is its line in a story.
"""

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, Final

from txn.counts import counted
from txn.errors import RejectedError
from txn.hints import did_you_mean
from txn.wire.api_keys import ApiKey
from txn.wire.encoding import encode
from txn.wire.error_codes import ErrorCode
from txn.wire.kio import load_request_schema, load_response_schema
from txn.wire.messages import is_flexible
from txn.wire.plain_bodies import decode_untrusted

HEADER: Final = struct.Struct(">hhih")
"""API key, version, correlation id, length of the client id."""

RECORD_COUNT: Final = struct.Struct(">i")
RECORD_COUNT_AT: Final = 57
"""Position of the record count in a batch of magic 2. Source: KIP-98, record batch."""

API_NAMES: Final = {
    "".join(part.capitalize() for part in key.name.split("_")): key for key in ApiKey
}
"""`EndTxn` → 26."""

NAMES: Final[dict[int, str]] = {int(key): name for name, key in API_NAMES.items()}


def api_key(name: str) -> ApiKey:
    """The key of an API by Kafka's name. Raises RejectedError with the nearest name."""
    known = API_NAMES.get(name)
    if known is None:
        hint = did_you_mean(name, API_NAMES) or ". Give a name such as Produce or EndTxn"
        raise RejectedError(f"{name!r} is no request of the Kafka protocol{hint}")
    return known


def error_code(name: str) -> ErrorCode:
    """An error by Kafka's name. Raises RejectedError with the nearest name."""
    known = ErrorCode.__members__.get(name)
    if known is None or known is ErrorCode.NONE:
        hint = did_you_mean(name, ErrorCode.__members__) or ". Give a name such as INVALID_RECORD"
        raise RejectedError(f"{name!r} is no error of the Kafka protocol{hint}")
    return known


@dataclass(frozen=True)
class Request:
    """One request frame. `frame` has its four bytes of length."""

    frame: bytes
    key: int
    version: int
    correlation_id: int
    client_id: str
    body_at: int

    @classmethod
    def read(cls, frame: bytes) -> "Request":
        """Read a frame's header. Raises ValueError: it is none of the Kafka protocol."""
        try:
            key, version, correlation_id, size = HEADER.unpack_from(frame, 4)
        except struct.error as error:
            raise ValueError(f"a request of {len(frame)} bytes") from error
        end = 4 + HEADER.size + max(size, 0)
        return cls(
            frame,
            key,
            version,
            correlation_id,
            frame[end - max(size, 0) : end].decode("utf-8", "replace"),
            end,
        )

    @property
    def name(self) -> str:
        """The API's name, `EndTxn`."""
        return NAMES.get(self.key, f"API {self.key}")

    @cached_property
    def fields(self) -> Any:
        """The decoded body, an entity of kio; None where it cannot be read."""
        try:
            schema: Any = load_request_schema(self.key, self.version)
            at = self.body_at
            if schema.__flexible__:
                at = _after_tags(self.frame, at)
            return decode_untrusted(schema, self.frame[at:])
        except Exception:  # a client's bytes, of any kind
            return None

    @property
    def transactional_id(self) -> str | None:
        """The transactional id that it names."""
        names = ("transactional_id", "v3_and_below_transactional_id")
        return next((str(id) for name in names if (id := getattr(self.fields, name, None))), None)

    @property
    def group_id(self) -> str | None:
        """The group that it names."""
        group = getattr(self.fields, "group_id", None)
        return None if group is None else str(group)

    @property
    def has_answer(self) -> bool:
        """False for a Produce with acks=0 alone."""
        return self.key != ApiKey.PRODUCE or getattr(self.fields, "acks", -1) != 0

    def produces_to(self, topic: str | None) -> bool:
        """Return whether it is a Produce, with records for a topic if one is given."""
        if self.key != ApiKey.PRODUCE:
            return False
        data = getattr(self.fields, "topic_data", ())
        return topic is None or any(getattr(each, "name", None) == topic for each in data)

    def describe(self) -> str:
        """The request in words: `EndTxn 'shop-1': commit`."""
        said = [self.name]
        if self.transactional_id is not None and self.key != ApiKey.PRODUCE:
            said.append(f"{self.transactional_id!r}")
        if self.group_id is not None:
            said.append(f"group {self.group_id!r}")
        details = ", ".join(_details(self))
        return " ".join(said) + (f": {details}" if details else "")


def _details(request: Request) -> Iterator[str]:
    body = request.fields
    if request.key == ApiKey.END_TXN and body is not None:
        yield "commit" if body.committed else "abort"
    for topic in _topics(body):
        name = getattr(topic, "name", None) or getattr(topic, "topic", None)
        name = name or str(getattr(topic, "topic_id", "?"))
        partitions: Iterable[Any] = getattr(topic, "partitions", None) or ()
        for partition in partitions or getattr(topic, "partition_data", ()):
            yield f"{name}-{_partition(partition)}"


def _topics(body: Any) -> Iterable[Any]:
    for name in ("topics", "topic_data", "v3_and_below_topics"):
        yield from getattr(body, name, None) or ()


def _partition(partition: Any) -> str:
    if isinstance(partition, int):
        return str(partition)
    index = next(
        getattr(partition, name)
        for name in ("index", "partition_index", "partition")
        if hasattr(partition, name)
    )
    if hasattr(partition, "committed_offset"):
        return f"{index} → {partition.committed_offset}"
    if hasattr(partition, "fetch_offset"):
        return f"{index} from {partition.fetch_offset}"
    if hasattr(partition, "records"):
        return f"{index}, {counted(record_count(partition.records), 'record')}"
    return str(index)


def record_count(batches: bytes | None) -> int:
    """Number of records in a Produce's batches of magic 2."""
    count, at, data = 0, 0, bytes(batches or b"")
    while at + RECORD_COUNT_AT + 4 <= len(data):
        count += RECORD_COUNT.unpack_from(data, at + RECORD_COUNT_AT)[0]
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return count


def errors_in(request: Request, answer: bytes) -> list[str]:
    """The names of the errors in an answer frame, each once; empty where there is none."""
    try:
        schema: Any = load_response_schema(request.key, request.version)
        at = 8
        if schema.__flexible__ and request.key != ApiKey.API_VERSIONS:
            at = _after_tags(answer, at)
        found = _codes(decode_untrusted(schema, answer[at:]))
    except Exception:  # for people alone
        return []
    return list(dict.fromkeys(ErrorCode(code).name for code in found if code))


def _codes(body: Any) -> Iterator[int]:
    if isinstance(body, tuple):
        for each in body:
            yield from _codes(each)
    elif is_dataclass(body):
        for field in fields(body):
            value = getattr(body, field.name)
            if field.name == "error_code":
                yield int(value)
            else:
                yield from _codes(value)


def refusal(request: Request, code: ErrorCode) -> bytes:
    """The answer frame that refuses each partition of a Produce."""
    responses = []
    for topic in request.fields.topic_data:
        name = {key: getattr(topic, key) for key in ("name", "topic_id") if hasattr(topic, key)}
        partitions = [
            {"index": each.index, "error_code": int(code), "base_offset": -1}
            for each in topic.partition_data
        ]
        responses.append({**name, "partition_responses": partitions})
    body = encode(
        load_response_schema(request.key, request.version),
        {"responses": responses, "throttle_time": 0},
    )
    tags = b"\0" if is_flexible(request.key, request.version) else b""
    payload = struct.pack(">i", request.correlation_id) + tags + body
    return struct.pack(">i", len(payload)) + payload


def _after_tags(frame: bytes, at: int) -> int:
    """The position behind the tagged fields of a header. Source: KIP-482."""
    count, at = _varint(frame, at)
    for _ in range(count):
        _, at = _varint(frame, at)
        size, at = _varint(frame, at)
        at += size
    return at


def _varint(frame: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
