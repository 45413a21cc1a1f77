"""Sound clients beside an attack: one that counts its milliseconds, one that is forgotten."""

import threading
import time
from collections.abc import Sequence
from typing import Final

from support.shown import COMMITTED, UNCOMMITTED, ShownReader
from support.wire_producer import Identity, WireProducer, identity
from txn import _core
from txn.storage.base import BatchKind

TOPIC: Final = "orders"
FORGOTTEN_TOPIC: Final = "forgotten"
FORGOTTEN_MS: Final = 1_000
PAUSE_S: Final = 0.002
DATA: Final = int(BatchKind.TRANSACTIONAL)
"""The kind of a batch that is no marker, as `_core.decode_batches` tells it."""


class Neighbour:
    """Runs transactions one after another in a thread: write, commit, read the committed record.

    Use as a context manager. `times_s` has the time of each, from its first byte until its record
    was read, and `failure` the error.
    """

    def __init__(self, servers: str, transactional_id: str = "sound") -> None:
        self.times_s: list[float] = []
        self.written: list[bytes] = []
        self.failure: Exception | None = None
        self._writer = WireProducer(servers, transactional_id)
        self._reader = ShownReader(servers)
        self._producer: Identity = identity(self._writer.start(two_phase=False))
        self._offset = self._reader.end_of(TOPIC, COMMITTED)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Neighbour":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._writer.socket.close()
        self._reader.socket.close()

    def _run(self) -> None:
        try:
            while not self._is_over.wait(PAUSE_S):
                began = time.monotonic()
                self._transact(b"%d" % len(self.written))
                self.times_s.append(time.monotonic() - began)
        except Exception as error:  # told by the waiting caller
            self.failure = error

    def _transact(self, value: bytes) -> None:
        code = self._writer.produce(self._producer, 0, value, topic=TOPIC)
        assert code == 0, f"Produce answers {code}"
        self._producer = identity(self._writer.end(self._producer))
        self.written.append(value)
        answer = self._reader.fetch(TOPIC, 0, self._offset, COMMITTED)
        assert int(answer.error_code) == 0, answer
        batches = _core.decode_batches(bytes(answer.records or b""))
        values = [record[3] for batch in batches for record in batch[5] if batch[4] == DATA]
        assert values == [value], f"{value!r} was committed, {values} are read"
        self._offset = batches[-1][1] + 1


def p99(times_s: Sequence[float]) -> float:
    """The time that 99 of 100 do not exceed."""
    return sorted(times_s)[int(0.99 * (len(times_s) - 1))]


class Forgotten:
    """A transaction whose client is gone: its timeout has to end it."""

    def __init__(self, servers: str, transactional_id: str = "forgotten") -> None:
        with WireProducer(servers, transactional_id) as writer:
            producer = identity(writer.start(two_phase=False, timeout_ms=FORGOTTEN_MS))
            assert writer.produce(producer, 0, b"never decided", topic=FORGOTTEN_TOPIC) == 0
        self.began = time.monotonic()
        self._reader = ShownReader(servers)

    def is_over(self) -> bool:
        """Readers may go on: nothing is open any more."""
        return self._reader.end_of(FORGOTTEN_TOPIC, COMMITTED) == (
            self._reader.end_of(FORGOTTEN_TOPIC, UNCOMMITTED)
        )

    def close(self) -> None:
        self._reader.socket.close()
