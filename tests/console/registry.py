"""A schema registry as a small HTTP server: it answers with schemas by number and by version."""

import base64
import json
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)

Answering = Callable[[BaseHTTPRequestHandler], None]
Answers = Mapping[str, dict[str, Any] | Answering]
"""Path without its parameters → the JSON of an answer, or a function that answers."""


def answer_json(handler: BaseHTTPRequestHandler, found: dict[str, Any] | None) -> None:
    body = json.dumps(found or {"error_code": 40403, "message": "Schema not found"}).encode()
    handler.send_response(200 if found else 404)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


@contextmanager
def http_server(answers: Answers) -> Iterator[tuple[str, list[str]]]:
    """A server at a free port: its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            path, _, query = self.path.partition("?")
            found = answers.get(path)
            if callable(found):
                found(self)
                return
            if found is not None and "schemaType" in found and "format=serialized" in query:
                found = {**found, "schema": found.get("serialized", found["schema"])}
            answer_json(self, found)

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False

        def handle_error(self, *args: object) -> None:
            """Print nothing: a client leaves whenever it likes."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def numbered(number: int, content: bytes) -> bytes:
    """A record as the serializers of registries frame it."""
    return struct.pack(">bi", 0, number) + content


def message(name: str, *fields: tuple[str, int, Any], nested: Any = ()) -> DescriptorProto:
    """A message with fields of (name, number, type); a text is the full name of a message."""
    found = DescriptorProto(name=name, nested_type=nested)
    for field, number, kind in fields:
        added = found.field.add(
            name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL
        )
        if isinstance(kind, str):
            added.type, added.type_name = FieldDescriptorProto.TYPE_MESSAGE, kind
        else:
            added.type = kind
    return found


def protobuf(
    package: str,
    *messages: DescriptorProto,
    imports: Any = (),
    references: Any = (),
) -> dict[str, Any]:
    """The answer of a registry about a Protobuf schema."""
    file = FileDescriptorProto(
        name="default", package=package, syntax="proto3", dependency=imports, message_type=messages
    )
    return {
        "schema": f'syntax = "proto3"; package {package};',
        "serialized": base64.b64encode(file.SerializeToString()).decode(),
        "schemaType": "PROTOBUF",
        "references": list(references),
    }
