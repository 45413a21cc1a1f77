"""Errors about wrong arguments of a client's calls, which name the argument and the remedy.

confluent-kafka says "a bytes-like object is required, not 'dict'". The arguments of a record are
checked only after confluent-kafka has refused the record.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Final, Protocol

from confluent_kafka import TopicPartition

Headers = list[tuple[str, str | bytes | None]] | dict[str, str | bytes | None]
"""Headers of a record, as `produce` takes them."""

LIKE_SECONDS_FIRST: Final = 10**8
LIKE_SECONDS_LAST: Final = 10**11 - 1
"""Timestamps between are suspected: of 1970 to 1973, and of 1973 to 5138 if they count seconds."""

MESSAGE_BYTES_MAX: Final = 1_000_000
"""message.max.bytes of a producer where it is left out."""


class ArrowStreamExportable(Protocol):
    """What Arrow's stream can be read from: a record batch, a table, a frame of polars or pandas.

    Source: The Arrow PyCapsule Interface.
    """

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return a capsule of an ArrowArrayStream."""


def wrong_record(
    topic: object,
    value: object,
    key: object,
    headers: object,
    partition: object,
    timestamp: object,
) -> str | None:
    """Return which argument of `produce` has a type that does not fit, and its remedy; or None."""
    return next(_faults(topic, value, key, headers, partition, timestamp), None)


def is_for_arguments(
    raised: BaseException,
    topic: object,
    value: object,
    key: object,
    headers: object,
    partition: object,
    timestamp: object,
) -> bool:
    """Return True if `produce` raised this for its arguments, before it did anything."""
    if isinstance(timestamp, int) and timestamp <= 0:
        return True
    is_type = isinstance(raised, TypeError)
    return is_type and wrong_record(topic, value, key, headers, partition, timestamp) is not None


def _faults(
    topic: object, value: object, key: object, headers: object, partition: object, timestamp: object
) -> Iterator[str]:
    if not isinstance(topic, str):
        yield f"topic is a str, not {_kind(topic)}"
    for name, given in (("value", value), ("key", key)):
        if not isinstance(given, str | bytes | None):
            yield f"{name} is bytes, str or None, not {_kind(given)}: give {_encoded(name, given)}"
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list | None):
        yield (
            f"headers are a dict or a list of pairs, not {_kind(headers)}: give {{'name': 'value'}}"
        )
    for pair in pairs if isinstance(pairs, list) else ():
        if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
            yield f"a header is a tuple of its name and its value, not {_kind(pair)} {pair!r}"
        elif not isinstance(pair[1], str | bytes | None):
            yield (
                f"the value of header {pair[0]!r} is bytes, str or None, not {_kind(pair[1])}: "
                f"give {_encoded('value', pair[1])}"
            )
    if not isinstance(partition, int | None):
        yield f"partition is an int or None, not {_kind(partition)}"
    if not isinstance(timestamp, int | None):
        moment = "timestamp.timestamp()" if isinstance(timestamp, datetime) else "time.time()"
        yield (
            f"timestamp is an int, in milliseconds since 1970, not {_kind(timestamp)}: give "
            f"int({moment} * 1000)"
        )


def _encoded(name: str, given: object) -> str:
    if isinstance(given, bytearray | memoryview):
        return f"bytes({name})"
    if isinstance(given, dict | list | tuple | int | float):
        return f"json.dumps({name}), for one"
    return f"its text or its bytes, str({name}) for one"


def seconds_suspected(timestamp: int) -> str:
    """Return the warning about a timestamp that is suspected."""
    return (
        f"timestamp {timestamp} is a time of before March 1973. Kafka counts milliseconds since "
        "1970; if this counts seconds, give int(seconds * 1000)"
    )


def too_large(whose: str, topic: str, record_bytes: int | None, message_bytes_max: object) -> str:
    """Return what to say of a record that its own producer refuses for its size.

    Args:
        whose: Whose record, as a message begins.
        topic: Where it should go.
        record_bytes: Its key and its value; None: it is one of many rows.
        message_bytes_max: The producer's message.max.bytes.
    """
    record = "one of the rows" if record_bytes is None else f"a record of {record_bytes} bytes"
    return (
        f"{whose} cannot send {record} to {topic!r}: with its own overhead "
        f"it is larger than message.max.bytes={message_bytes_max} of the producer "
        "(MSG_SIZE_TOO_LARGE). Raise that, and max.message.bytes of the topic, or put less into a "
        "record"
    )


def size_of(value: str | bytes | None, key: str | bytes | None) -> int:
    """Return the number of bytes of a record's key and value."""
    return sum(
        len(part.encode()) if isinstance(part, str) else len(part or b"") for part in (value, key)
    )


def wrong_topics(topics: object) -> str | None:
    """Return why these are no topics to subscribe to, and the remedy; None if they are."""
    if isinstance(topics, str):
        return f"topics are a list of names, not a str: give [{topics!r}]"
    if not isinstance(topics, list) or not all(isinstance(topic, str) for topic in topics):
        return f"topics are a list of names, each a str, not {topics!r}"
    return None


def wrong_partition(partition: object) -> str | None:
    """Return why this is no place to seek, and the remedy; None if it is."""
    if isinstance(partition, TopicPartition):
        return None
    return (
        f"partition is a TopicPartition, not {_kind(partition)}: give "
        "TopicPartition('topic', 0, offset)"
    )


def wrong_wait(num_messages: object, timeout: object) -> str | None:
    """Return why a consumer cannot read by these, and the remedy; None if it can."""
    if not isinstance(num_messages, int):
        return f"num_messages is an int, not {_kind(num_messages)}"
    if not isinstance(timeout, int | float):
        return f"timeout is a number of seconds, not {_kind(timeout)}: -1 waits without end"
    return None


def wrong_partitions(partitions: object) -> str | None:
    """Return why these are no partitions to assign, and the remedy; None if they are."""
    are_all = isinstance(partitions, list) and all(
        isinstance(partition, TopicPartition) for partition in partitions
    )
    if are_all:
        return None
    return (
        f"partitions are a list of TopicPartition, not {partitions!r}: give "
        "[TopicPartition('topic', 0)]"
    )


def _kind(thing: object) -> str:
    if thing is None:
        return "None"
    name = type(thing).__name__
    return f"{'an' if name[0].lower() in 'aeio' else 'a'} {name}"
