"""The process that decodes one record: a request on standard input, the answer on standard output.

It limits itself before it loads anything else. A signal without a handler ends it at a limit of
time, also while C code runs.
"""

import base64
import json
import resource
import signal
import struct
import sys
from typing import Any, Final

from txn.console.contents import Form, laid_out, lines, noted

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
HEADER: Final = struct.Struct(">bi")
ANSWER_S: Final = 5
"""Seconds that the registry has to accept a connection, and between two pieces of its answer."""

REASON_CHARS: Final = 200

Found = tuple[list[str] | None, str | None]
"""Lines, and a note; without lines the record is shown as text."""


def limit(computing_s: int, wait_s: int, memory_bytes: int) -> None:
    """Limit this process for ever: seconds of computing, seconds, bytes of address space."""
    signal.alarm(wait_s)
    resource.setrlimit(resource.RLIMIT_CPU, (computing_s, computing_s + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def answered(request: dict[str, Any]) -> dict[str, Found]:
    """The lines and the note of each part of a request."""
    return {
        name: _decoded(request["url"], request["topic"], base64.b64decode(part), name == "key")
        for name, part in request["parts"].items()
    }


def _decoded(url: str, topic: str, content: bytes, is_key: bool) -> Found:
    number = HEADER.unpack_from(content)[1]
    try:
        kind, found, note = _read(url, topic, content, number, is_key)
    except MemoryError:
        return None, f"Schema {number} does not read it: it takes too much memory"
    except RecursionError:
        return None, f"Schema {number} does not read it: it is nested too deeply"
    except Exception as error:  # of the registry, of HTTP, of any of the decoders
        reason = str(error).split("\n")[0][:REASON_CHARS] or type(error).__name__
        return None, f"Schema {number} does not read it: {reason}"
    if found is None:
        return None, note
    return found, noted(f"Read by schema {number} of the registry, {kind}", note)


def _read(
    url: str, topic: str, content: bytes, number: int, is_key: bool
) -> tuple[str, list[str] | None, str | None]:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    client = SchemaRegistryClient({"url": url, "timeout": ANSWER_S, "max.retries": 0})
    schema = client.get_schema(number)
    kind = schema.schema_type or AVRO
    if kind == AVRO:
        from confluent_kafka.schema_registry.avro import AvroDeserializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        field = MessageField.KEY if is_key else MessageField.VALUE
        value = AvroDeserializer(client)(content, SerializationContext(topic, field))
        return kind, *laid_out(json.dumps(value, ensure_ascii=False, default=_plain))
    payload = content[HEADER.size :]
    if kind == JSON:
        from txn.console.registry.json_schema import fault_of

        found, note = lines(payload, Form.JSON)  # its own text: a value loses its numbers' form
        return kind, list(found), noted(fault_of(payload, schema, client), note)
    if kind == PROTOBUF:
        from txn.console.registry.protobuf import json_of

        # A client keeps the schema of a number in one form, so another one asks for the other.
        other = SchemaRegistryClient({"url": url, "timeout": ANSWER_S, "max.retries": 0})
        name, text, why = json_of(payload, number, other)
        found_, note = laid_out(text)
        return f"{kind} {name}", found_, noted(why, note)
    raise ValueError(f"it is {kind}, and the console decodes {AVRO}, {JSON} and {PROTOBUF}")


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


if __name__ == "__main__":
    asked = json.load(sys.stdin)
    limit(**asked["limits"])
    print(json.dumps(answered(asked)))
