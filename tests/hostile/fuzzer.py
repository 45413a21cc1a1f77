"""Mutated requests: valid ones of every API and version with something wrong, over many sockets.

    PYTHONPATH=tests python -m hostile.fuzzer 127.0.0.1:9092 --seconds 600 --seed 7

A process of its own, at low priority. Its connections are many, since some requests wait; one
that gets no answer soon, as when a length was blown up, is closed and replaced. A line of JSON at
the end has the number of requests and the answers.
"""

import argparse
import json
import os
import random
import selectors
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from hostile.frames import SIZES, SchemaField, Values, apis, body_of, frame
from txn.wire.kio import load_request_schema

CONNECTIONS: Final = 24
PIPELINED: Final = 2
"""Requests to a connection at a time."""

ANSWER_S: Final = 0.1
PREFIX: Final = "mutated"
"""No name that it sends is another client's."""

EXTREMES: Final = (
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\x00\x10\0\0",
    b"\xff" * 8,
    b"\x7f" + b"\xff" * 7,
    b"\x80" + bytes(7),
    b"\xff\xff\xff\xff\x0f",  # the longest unsigned varint
    b"\xff\xff\xff\xff\x7f",
    b"\x7f\xff",
    b"\xff\xff",
    b"\0",
)
HEADER_BYTES: Final = 14
"""Length, key, version, correlation id, no client id."""


class Wild(Values):
    """Bodies that can be read, with fields at their limits."""

    def count(self, field: SchemaField, path: tuple[str, ...]) -> int:
        is_many = self._chance.random() < 0.03 and len(path) < 3
        return self._chance.choice((50, 1_000)) if is_many else super().count(field, path)

    def fixed(self, field: SchemaField) -> bytes:
        if self._chance.random() > WILDNESS or field.kind in ("uuid", "bool"):
            return super().fixed(field)
        size = SIZES[field.kind]
        most = (1 << 8 * size - 1) - 1
        number = self._chance.choice((-1, most, -most - 1, most - 1, -2, 0, 1, 32_768 % most))
        return number.to_bytes(size, "big", signed=True)

    def text(self, field: SchemaField) -> bytes:
        if self._chance.random() > WILDNESS:
            return super().text(field)
        return self._chance.choice(
            (b"", b"\xff\xfe", b"\0", b"../..", b"\xc3\xa9" * 40, b"x" * 300)
        )

    def content(self, field: SchemaField) -> bytes:
        sound = super().content(field)
        if self._chance.random() > WILDNESS:
            return sound
        return bytes(self._chance.choice(MUTATIONS)(self._chance, bytearray(sound)))


WILDNESS: Final = 0.1
"""Number of fields of a body that are at their limits."""


class Mutator:
    """Makes frames; the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._sound = Values(self._chance, PREFIX)
        self._wild = Wild(self._chance, PREFIX)
        self._apis = list(apis())
        self._schemas = [load_request_schema(key, version) for key, version in self._apis]

    def frame(self) -> bytes:
        """A request: one in ten is sound, half can be read, and the rest need not be."""
        number = self._chance.randrange(len(self._apis))
        kind = self._chance.random()
        values = self._sound if kind < 0.1 else self._wild
        body = bytearray(body_of(self._schemas[number], values))
        for _ in range(self._chance.choice((1, 1, 1, 2, 4)) if kind > 0.6 else 0):
            body = self._chance.choice(MUTATIONS)(self._chance, body)
        whole = bytearray(frame(*self._apis[number], bytes(body)))
        return bytes(self._mutate_header(whole) if self._chance.random() < 0.02 else whole)

    def _mutate_header(self, whole: bytearray) -> bytearray:
        position = self._chance.randrange(HEADER_BYTES)
        whole[position] ^= 1 << self._chance.randrange(8)
        return whole


def _flip(chance: random.Random, body: bytearray) -> bytearray:
    for _ in range(chance.choice((1, 1, 2, 5)) if body else 0):
        body[chance.randrange(len(body))] ^= 1 << chance.randrange(8)
    return body


def _cut(chance: random.Random, body: bytearray) -> bytearray:
    return body[: chance.randrange(len(body) + 1)]


def _insert(chance: random.Random, body: bytearray) -> bytearray:
    position = chance.randrange(len(body) + 1)
    return body[:position] + chance.randbytes(chance.choice((1, 2, 4, 30))) + body[position:]


def _remove(chance: random.Random, body: bytearray) -> bytearray:
    position = chance.randrange(len(body) + 1)
    return body[:position] + body[position + chance.choice((1, 2, 4, 8)) :]


def _extreme(chance: random.Random, body: bytearray) -> bytearray:
    """A number, a length or a count at its limit."""
    value = chance.choice(EXTREMES)
    position = chance.randrange(len(body) + 1)
    return body[:position] + value + body[position + len(value) :]


def _repeat(chance: random.Random, body: bytearray) -> bytearray:
    """An item many times; sometimes with a count that says so."""
    start = chance.randrange(len(body) + 1)
    part = body[start : start + chance.choice((1, 4, 12, 40))]
    return body[:start] + part * chance.choice((2, 3, 100)) + body[start:]


def _nest(chance: random.Random, body: bytearray) -> bytearray:
    """The body within itself."""
    position = chance.randrange(len(body) + 1)
    return body[:position] + body + body[position:]


MUTATIONS: Final[tuple[Callable[[random.Random, bytearray], bytearray], ...]] = (
    _flip,
    _flip,
    _cut,
    _insert,
    _remove,
    _extreme,
    _extreme,
    _repeat,
    _nest,
)


class FuzzedConnection:
    """One connection of the fuzzer."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, 10)
        self.socket.setblocking(False)
        self.unsent = b""
        self.unanswered = 0
        self.received = bytearray()
        self.deadline = 0.0

    def give(self, frames: list[bytes]) -> None:
        self.unsent = b"".join(frames)
        self.unanswered = len(frames)
        self.deadline = time.monotonic() + ANSWER_S

    def send(self) -> None:
        self.unsent = self.unsent[self.socket.send(self.unsent) :]

    def receive(self) -> bool:
        """Read; False once the broker has closed."""
        data = self.socket.recv(1 << 18)
        self.received += data
        while len(self.received) >= 4:
            (size,) = struct.unpack_from(">i", self.received)
            if len(self.received) < 4 + size:
                break
            del self.received[: 4 + size]
            self.unanswered -= 1
        return bool(data)


class Fuzzer:
    """Keeps its connections busy until the time is over."""

    def __init__(self, servers: str, seed: int) -> None:
        host, _, port = servers.rpartition(":")
        self._address = host, int(port)
        self._mutator = Mutator(seed)
        self._selector = selectors.DefaultSelector()
        self.counts: Counter[str] = Counter()

    def run(self, seconds: float) -> None:
        peers = [self._new_peer() for _ in range(CONNECTIONS)]
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            for key, events in self._selector.select(0.01):
                self._serve(key.data, events)
            for number, peer in enumerate(peers):
                if peer.socket.fileno() < 0:
                    peers[number] = self._new_peer()
                elif peer.unanswered <= 0 and not peer.unsent:
                    self._give(peer)
                elif now > peer.deadline:
                    self._close(peer, "given up")
        for peer in peers:
            if peer.socket.fileno() >= 0:
                self._close(peer, "left")

    def _new_peer(self) -> FuzzedConnection:
        peer = FuzzedConnection(self._address)
        self._selector.register(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
        self._give(peer)
        return peer

    def _give(self, peer: FuzzedConnection) -> None:
        peer.give([self._mutator.frame() for _ in range(PIPELINED)])
        self._selector.modify(peer.socket, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)

    def _serve(self, peer: FuzzedConnection, events: int) -> None:
        waiting = peer.unanswered
        try:
            if events & selectors.EVENT_WRITE:
                peer.send()
                if not peer.unsent:
                    self._selector.modify(peer.socket, selectors.EVENT_READ, peer)
            is_open = not events & selectors.EVENT_READ or peer.receive()
        except BlockingIOError:
            return
        except OSError:
            is_open = False
        self.counts["answered"] += waiting - peer.unanswered
        if not is_open:
            self._close(peer, "closed by the broker")

    def _close(self, peer: FuzzedConnection, why: str) -> None:
        self.counts[why] += 1
        self._selector.unregister(peer.socket)
        peer.socket.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("servers")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    os.nice(5)
    fuzzer = Fuzzer(asked.servers, asked.seed)
    fuzzer.run(asked.seconds)
    json.dump(fuzzer.counts, sys.stdout)


if __name__ == "__main__":
    main()
