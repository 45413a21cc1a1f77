"""A connection of asyncio to a broker: one request at a time."""

import asyncio
import struct
from typing import Any, Final

from kio.serial import entity_reader

from support.response_schemas import response_schema
from txn.wire.messages import encode_request, is_flexible

ANSWER_S: Final = 120.0
API_VERSIONS: Final = 18


class Connection:
    """A connection; its answers are kio's entities."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, servers: str) -> "Connection":
        """Connect to the first of some servers."""
        host, _, port = servers.rpartition(":")
        return cls(*await asyncio.open_connection(host, int(port), limit=1 << 20))

    async def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """Send a request and return its answer.

        Raises:
            TimeoutError: There is none within two minutes.
            IncompleteReadError: The broker closed the connection.
        """
        flexible = is_flexible(key, version)
        header = struct.pack(">hhih", key, version, 7, -1) + (b"\0" if flexible else b"")
        body = header + encode_request(key, version, fields)
        self._writer.write(struct.pack(">i", len(body)) + body)
        async with asyncio.timeout(ANSWER_S):
            (size,) = struct.unpack(">i", await self._reader.readexactly(4))
            answer = await self._reader.readexactly(size)
        start = 5 if flexible and key != API_VERSIONS else 4
        return entity_reader(response_schema(key, version))(answer[start:], 0)[0]

    def close(self) -> None:
        """Close it, without a word to the broker."""
        self._writer.close()
