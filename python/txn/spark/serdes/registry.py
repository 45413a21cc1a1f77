"""The registry as the driver and each worker see it: texts by subject or by id."""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from txn.errors import ConfigError, RejectedError, RetriableError
from txn.spark.serdes.errors import BadRowError

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
SERIALIZED: Final = "serialized"
"""The format in which a registry gives a descriptor of Protobuf."""

CLIENTS_MAX: Final = 16
REFERENCES_MAX: Final = 1_000
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


_clients: Recent[Settings, Any] = Recent(CLIENTS_MAX)


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
    client = _client(settings)

    def ask(format: str | None) -> Any:
        if version is None:
            return client.get_latest_version(subject, format)
        return client.get_version(subject, version, fmt=format)

    try:
        found = ask(None)
        if (found.schema.schema_type or AVRO) == PROTOBUF:
            client.clear_caches()  # they hold the other format
            found = ask(SERIALIZED)
        return _text(client, found.schema, found.schema_id)
    except Exception as error:
        raise _told(error, f"subject {subject!r}") from error


def of_id(settings: Settings, id: int, type: str) -> Text:
    """The schema with an id, in the format of a type.

    Raises:
        BadRowError: no schema has the id.
        RetriableError: the registry does not answer.
    """
    client = _client(settings)
    try:
        found = client.get_schema(id, fmt=SERIALIZED if type == PROTOBUF else None)
        text = _text(client, found, id)
        client.clear_caches()  # these have no bound; the caller's cache has one
        return text
    except Exception as error:
        if getattr(error, "http_status_code", None) == NOT_FOUND:
            raise BadRowError(f"the registry has no schema {id}") from None
        raise _told(error, f"schema {id}") from error


def _client(settings: Settings) -> Any:
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"columns of a schema registry need packages of an extra ({error.name}). Run "
            "`pip install '.[registry]'` in txn's checkout, on the workers too"
        ) from None
    return _clients.get_or_make(settings, lambda: SchemaRegistryClient(dict(settings)))


def _text(client: Any, schema: Any, id: int | None) -> Text:
    type = schema.schema_type or AVRO
    format = SERIALIZED if type == PROTOBUF else None
    found: dict[str, str] = {}
    seen: set[tuple[str, int]] = set()

    def walk(references: Any) -> None:
        for each in references or ():
            key = (each.subject, each.version)
            if key in seen:
                continue
            seen.add(key)
            if len(seen) > REFERENCES_MAX:
                raise RejectedError(f"a schema has more than {REFERENCES_MAX} references")
            used = client.get_version(each.subject, each.version, True, format).schema
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
