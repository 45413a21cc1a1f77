"""The notes of one client: a line of JSON for everything it does, written as it happens.

A line is written in one system call: before its action could have an effect (`send`, `ask`) or
after the fate is known (`ack`, `end`, `reads`). So a SIGKILL leaves whole lines, and the notes
never claim more than the client knew. The Java client writes the same lines.

    instance  id instance asked                    InitProducerId, asked for then, was answered
    begin     attempt id instance                  a transaction began
    send      attempt|producer topic partition key value
    unsent    value                                the client itself refused it
    ack       value offset
    reads     reader rows: [topic, partition, offset, key, value]…
    ask       attempt what: commit|abort
    end       attempt what, error: a text, or null for success
    trouble   client what                          for those who read the notes

Every line has `at`: seconds of the monotonic clock.
"""

import json
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harnesses.black_box.history import Attempt, Fate, History, Instance, ReadRecord, SentRecord

FOLLOWER = "follower"
"""A reader of this name leaves nothing out."""


class Notebook:
    """The file one client writes to."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, event: str, **facts: Any) -> None:
        """Write one line, which is there even if the process is killed in the next moment."""
        line = json.dumps({"at": time.monotonic(), "event": event, **facts})
        os.write(self._file, line.encode() + b"\n")


def read_notes(paths: Iterable[Path]) -> tuple[History, list[str]]:
    """Fold the notes of all clients into a history without its end; and their troubles.

    Raises:
        ValueError: a line cannot be read, but for a last one without an end.
    """
    book = _Book()
    for path in filter(Path.exists, paths):  # one that was killed early has written nothing
        text = path.read_bytes()
        for line in text[: text.rfind(b"\n") + 1].splitlines():
            facts = json.loads(line)
            getattr(book, f"on_{facts.pop('event')}")(**facts)
    book.history.attempts.sort(key=lambda attempt: attempt.began_s)
    return book.history, book.troubles


class _Book:
    """Takes in one line after another."""

    def __init__(self) -> None:
        self.history = History()
        self.troubles: list[str] = []
        self._attempts: dict[str, Attempt] = {}
        self._writes: dict[str, SentRecord] = {}
        self._senders: dict[str, list[SentRecord]] = {}

    def on_instance(self, at: float, id: str, instance: str, asked: float) -> None:
        self.history.instances.append(Instance(instance, id, asked, at))

    def on_begin(self, at: float, attempt: str, id: str, instance: str) -> None:
        self._attempts[attempt] = Attempt(attempt, id, instance, at)
        self.history.attempts.append(self._attempts[attempt])

    def on_send(
        self,
        at: float,
        topic: str,
        partition: int,
        key: str,
        value: str,
        attempt: str | None = None,
        producer: str | None = None,
    ) -> None:
        if attempt is None:
            sent = self.history.plain.setdefault(str(producer), [])
        else:
            sent = self._attempts[attempt].writes
        self._writes[value] = SentRecord((topic, partition), key, value)
        self._senders[value] = sent
        sent.append(self._writes[value])

    def on_unsent(self, at: float, value: str) -> None:
        self._senders[value].remove(self._writes[value])

    def on_ack(self, at: float, value: str, offset: int) -> None:
        self._writes[value].offset = offset

    def on_reads(self, at: float, reader: str, rows: list[list[Any]]) -> None:
        is_following = reader.startswith(FOLLOWER)
        self.history.reads += [
            ReadRecord(reader, at, (topic, partition), offset, key, value, is_following)
            for topic, partition, offset, key, value in rows
        ]

    def on_ask(self, at: float, attempt: str, what: str) -> None:
        asked = self._attempts[attempt]
        if what == "commit" and asked.commit_asked_s is None:
            asked.commit_asked_s = at
            asked.fate = Fate.UNKNOWN

    def on_end(self, at: float, attempt: str, what: str, error: str | None) -> None:
        ended = self._attempts[attempt]
        if error is not None:
            self.troubles.append(f"{attempt}: {what}: {error}")
            return
        # A commit that was sent may have arrived: only a successful abort says it did not.
        ended.fate = Fate.KEPT if what == "commit" else Fate.GONE
        ended.ended_s = at

    def on_trouble(self, at: float, client: str, what: str) -> None:
        self.troubles.append(f"{client}: {what}")
