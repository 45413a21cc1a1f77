"""Keys and values by the schemas of a registry: Avro and JSON Schema. It only reads the registry.

A record of these formats begins with a zero byte and the number of its schema. The deserializers
of confluent-kafka read the rest. A registry that does not answer is a note
beside the text, and so are bytes that do not fit. Every record has its page.
"""

import json
import struct
import threading
from collections.abc import Sequence
from typing import Any, Final

from txn.console.pages.topics.contents import Form, laid_out, lines, noted
from txn.errors import ConfigError

AVRO, JSON = "AVRO", "JSON"
MAGIC: Final = 0
HEADER: Final = struct.Struct(">bi")
TIMEOUT_S: Final = 5
BYTES_MAX: Final = 1 << 20
"""The most bytes of a record that are decoded."""


class Schemas:
    """The schemas of a registry.

    Args:
        url: Its address.

    Raises:
        ConfigError: the packages for it are not installed, or the address is none.
    """

    def __init__(self, url: str) -> None:
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.avro import AvroDeserializer
            from confluent_kafka.schema_registry.json_schema import JSONDeserializer
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"--registry needs packages of its extra ({error.name}). Run `pip install "
                "'.[registry]'` in txn's checkout"
            ) from None
        try:
            self._client = SchemaRegistryClient(
                {"url": url, "timeout": TIMEOUT_S, "max.retries": 1}
            )
        except ValueError as error:
            raise ConfigError(f"--registry {url!r} is no address: {error}") from None
        self._lock = threading.Lock()
        self._readers: dict[str, Any] = {
            AVRO: AvroDeserializer(self._client),
            JSON: JSONDeserializer(None, schema_registry_client=self._client),
        }

    def lines(
        self, content: bytes | None, topic: str, *, is_key: bool
    ) -> tuple[Sequence[str], str | None]:
        """The lines of a key or value, and a note about its schema, or why it is shown as text."""
        if content is None:
            return lines(None, Form.TEXT)
        if len(content) < HEADER.size or content[0] != MAGIC:
            return _as_text(content, "It begins with no number of a schema")
        if len(content) > BYTES_MAX:
            return _as_text(content, "It is too large to be decoded here")
        number = HEADER.unpack_from(content)[1]
        try:
            with self._lock:
                kind, value = self._decoded(content, number, topic, is_key=is_key)
            read = f"Read by schema {number} of the registry, {kind}"
            if kind == JSON:  # its own text: the value has lost the form of its numbers
                found, note = lines(content[HEADER.size :], Form.JSON)
                return found, noted(read, note)
            shown, note = laid_out(json.dumps(value, ensure_ascii=False, default=_plain))
        except Exception as error:  # of the registry, of HTTP, of any of the decoders
            reason = str(error).split("\n")[0][:200] or type(error).__name__
            return _as_text(content, f"Schema {number} does not read it: {reason}")
        return _as_text(content, note) if shown is None else (shown, noted(read, note))

    def _decoded(
        self, content: bytes, number: int, topic: str, *, is_key: bool
    ) -> tuple[str, object]:
        from confluent_kafka.serialization import MessageField, SerializationContext

        kind = self._client.get_schema(number).schema_type or AVRO
        reader = self._readers.get(kind)
        if reader is None:
            raise ValueError(f"it is {kind}, and the console decodes {', '.join(self._readers)}")
        field = MessageField.KEY if is_key else MessageField.VALUE
        return kind, reader(content, SerializationContext(topic, field))


def _as_text(content: bytes, note: str | None) -> tuple[Sequence[str], str | None]:
    found, more = lines(content, Form.TEXT)
    return found, noted(note, more)


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
