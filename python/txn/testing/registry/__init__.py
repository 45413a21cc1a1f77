"""A schema registry for tests, beside a test's broker.

    client → HTTP (`server.py`) → calls (`routes.py`) → requests (`registry.py`)
                                                          ↓ records      ↑ replay (`state.py`)
                                                       the topic `_schemas` (`topic.py`)

It answers the calls that the serializers of confluent-kafka and their client make, as Confluent's
Schema Registry does, and stores the same records. It differs where docs/how-to/schemas.md says so.
"""

import os
import threading
from typing import Self

from txn.errors import RejectedError
from txn.testing.client import KitClient
from txn.testing.registry.registry import Registry
from txn.testing.registry.routes import answer
from txn.testing.registry.server import Server
from txn.testing.registry.topic import SchemasTopic


class SchemaRegistry:
    """A registry that keeps its schemas in the topic `_schemas` of a test's broker.

    `TestBroker.schema_registry` opens it; it closes with the broker.

    Attributes:
        url: Its address, for the property `url` of a client.
    """

    def __init__(self, kit: KitClient, user_info: str | None = None) -> None:
        if user_info is not None and not user_info.partition(":")[2]:
            raise RejectedError('user_info is "name:password"')
        self._topic = SchemasTopic(kit)
        self._registry = Registry(self._topic)
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._is_open = True
        self._server = Server(self._answer, user_info)
        self.url = f"http://127.0.0.1:{self._server.port}"

    def close(self) -> None:
        """Stop. Harmless when repeated, and in a forked child."""
        if self._is_open and self._pid == os.getpid():
            self._is_open = False
            self._server.close()

    def forget(self) -> None:
        """Read `_schemas` from its beginning at the next request."""
        self._topic.forget()

    def _answer(self, method: str, target: str, body: bytes) -> object:
        with self._lock:
            return answer(self._registry, method, target, body)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<SchemaRegistry {self.url}>"
