"""The registry as the driver and each worker see it: texts by subject or by id.

`bounded_client` bounds the bytes of each answer and the time of a look-up. Here are the bounds of
the texts of a schema with its references, and of the ids that the registry does not have.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from txn.errors import ConfigError, RejectedError, RetriableError
from txn.spark.serdes.bounded_client import BoundedClient
from txn.spark.serdes.errors import BadRowError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
SERIALIZED: Final = "serialized"
"""The format in which a registry gives a descriptor of Protobuf."""

CLIENTS_MAX: Final = 16
REFERENCES_MAX: Final = 1_000
SCHEMA_BYTES_MAX: Final = 16 << 20
"""The most characters of a schema and all of its references."""

UNREADABLE_IDS_MAX: Final = 10_000
"""The most ids of a column that a worker looks up in vain within `UNREADABLE_SECONDS`."""

UNREADABLE_SECONDS: Final = 60.0
"""How long a worker does not look up an id again that the registry did not have."""

NOT_FOUND: Final = 404

Settings = tuple[tuple[str, Any], ...]
"""The properties of a client, sorted, so that workers find their client by them."""

K = TypeVar("K")
V = TypeVar("V")


class Recent(OrderedDict[K, V]):
    """A mapping with a bound: it forgets the values that were not used for the longest time."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def get_or_make(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, made if it is missing."""
        if key in self:
            self.move_to_end(key)
            return self[key]
        value = self[key] = make()
        if len(self) > self._most:
            self.popitem(last=False)
        return value


class UnreadableIds:
    """The ids of schemas that a column cannot be read by, each with the reason, for a while.

    Anybody who writes to a topic can invent ids, and each costs a look-up.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found: OrderedDict[int, tuple[str, float]] = OrderedDict()

    def check(self, id: int) -> None:
        """Raise BadRowError for an id that was looked up in vain a short time ago."""
        self._forget()
        if id in self._found:
            raise BadRowError(self._found[id][0])

    def note(self, id: int, reason: str) -> None:
        """Note an id, and the reason why it reads nothing.

        Raises:
            RejectedError: they are too many.
        """
        self._forget()
        if len(self._found) >= UNREADABLE_IDS_MAX:
            raise RejectedError(
                f"a column names more than {UNREADABLE_IDS_MAX} ids of schemas within "
                f"{UNREADABLE_SECONDS:g} s that cannot read it, the last one {id}: {reason}. "
                "Check that the column has the framing of this registry, or filter the rows with "
                "other ids (bytes 2 to 5) before they are decoded"
            )
        self._found[id] = reason, self._clock() + UNREADABLE_SECONDS

    def _forget(self) -> None:
        now = self._clock()
        while self._found and next(iter(self._found.values()))[1] <= now:
            self._found.popitem(last=False)


@dataclass(frozen=True, slots=True)
class Text:
    """A schema as text; Protobuf's is a descriptor in base64.

    Attributes:
        id: Its id; None if the registry did not give it.
        type: AVRO, JSON or PROTOBUF.
        text: The schema.
        references: The name and text of each schema that it uses; those that others use are first.
    """

    id: int | None
    type: str
    text: str
    references: tuple[tuple[str, str], ...]


_clients: Recent[Settings, BoundedClient] = Recent(CLIENTS_MAX)


def settings_of(registry: str | Mapping[str, Any]) -> Settings:
    """The properties of a client; a text is the address of the registry. Raises ConfigError."""
    given = {"url": registry} if isinstance(registry, str) else dict(registry)
    if not given.get("url"):
        raise ConfigError('a registry is its address, or the properties of its client with "url"')
    return tuple(sorted(given.items()))


def of_subject(settings: Settings, subject: str, version: int | None) -> Text:
    """The schema of a subject.

    Args:
        settings: The registry.
        subject: The subject.
        version: Its version; None: the last one.

    Raises:
        ConfigError: the extra `registry` is not installed.
        RejectedError: there is no such subject or version.
        RetriableError: the registry does not answer.
    """

    def ask(client: Any, format: str | None) -> Any:
        if version is None:
            return client.get_latest_version(subject, format)
        return client.get_version(subject, version, fmt=format)

    def look_up(client: Any) -> Text:
        found = ask(client, None)
        if (found.schema.schema_type or AVRO) == PROTOBUF:
            client.clear_caches()  # they hold the other format
            found = ask(client, SERIALIZED)
        return _text(client, found.schema, found.schema_id)

    try:
        return _ask(settings, look_up)
    except Exception as error:
        raise _told(error, f"subject {subject!r}") from error


def of_id(settings: Settings, id: int, type: str) -> Text:
    """The schema with an id, in the format of a type.

    Raises:
        BadRowError: no schema has the id.
        RejectedError: the registry refuses, or its answer is too large.
        RetriableError: the registry does not answer.
    """

    def look_up(client: Any) -> Text:
        try:
            found = client.get_schema(id, fmt=SERIALIZED if type == PROTOBUF else None)
            return _text(client, found, id)
        finally:
            client.clear_caches()  # these have no bound; the caller's cache has one

    try:
        return _ask(settings, look_up)
    except Exception as error:
        if getattr(error, "http_status_code", None) == NOT_FOUND:
            raise BadRowError(f"the registry has no schema {id}") from None
        raise _told(error, f"schema {id}") from error


def _ask(settings: Settings, look_up: Callable[[Any], Text]) -> Text:
    """Look up with the client of these settings; one that hangs is not used again."""
    client = _clients.get_or_make(settings, lambda: BoundedClient(settings))
    try:
        return client.ask(look_up)
    except TimeoutError:
        _clients.pop(settings, None)
        raise


def _text(client: Any, schema: Any, id: int | None) -> Text:
    type = schema.schema_type or AVRO
    format = SERIALIZED if type == PROTOBUF else None
    found: dict[str, str] = {}
    seen: set[tuple[str, int]] = set()
    length = len(schema.schema_str)

    def walk(references: Any) -> None:
        nonlocal length
        for each in references or ():
            key = (each.subject, each.version)
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > REFERENCES_MAX:
                raise RejectedError(f"a schema has more than {REFERENCES_MAX} references")
            used = client.get_version(each.subject, each.version, True, format).schema
            length += len(used.schema_str)
            if length > SCHEMA_BYTES_MAX:
                raise RejectedError(
                    f"a schema has more than {SCHEMA_BYTES_MAX} bytes with its references"
                )
            walk(used.references)
            found.setdefault(each.name, used.schema_str)

    walk(schema.references)
    return Text(id, type, schema.schema_str, tuple(found.items()))


def _told(error: Exception, what: str) -> Exception:
    """The error that says how the registry failed."""
    if isinstance(error, ConfigError | RejectedError):
        return error
    status = getattr(error, "http_status_code", None)
    if status is not None and status < 500:
        return RejectedError(f"the registry refused {what}: {error}")
    return RetriableError(f"the registry did not give {what}: {error}")
