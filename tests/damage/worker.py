"""A process that starts brokers on damaged directories, one after another, and reports its
observations.

It reads a question per line, `verify PATH`, `start PATH` or `accept PATH`, and answers in JSON
lines: the step that begins, and at last the answer. It is a process of its own, because it may hang
or end.

    {"step": "start"}
    {"answer": [...]}      `Finding`s, or one or two `BrokerStart`s

`accept PATH` follows the advice of the refusals, and starts again.
"""

import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypedDict

import txn
from damage.left import GROUP, TOPICS
from support.shown import Shown, ShownReader, observe
from txn.cli.accepting import NothingDamagedError, accept
from txn.errors import TxnError
from txn.inspect.verify import verify

IDS: Final = ("payer", "hanging")
TOLD_S: Final = 2.5
SETTINGS: Final[dict[str, Any]] = {
    "log.cleaner.enable": False,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 100,
}


class BrokerStart(TypedDict):
    """One start of a broker.

    Attributes:
        refused: The error's type and text, or None.
        is_on_purpose: The error is one of txn's own.
        shown: None if it was refused.
        appended: By topic: error, offset and leader epoch of a record that was written at last.
        lines: Warnings and errors that were logged.
        is_traceback: Among these was an exception.
    """

    refused: str | None
    is_on_purpose: bool
    shown: Shown | None
    appended: dict[str, tuple[str, int, int]]
    lines: list[str]
    is_traceback: bool


Finding = tuple[str, str]
"""A finding of `txn log verify`: file and text."""


class Lines(logging.Handler):
    """Keeps warnings and errors."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []
        self.is_traceback = False

    def await_names(self, places: Iterable[str]) -> None:
        """Wait for lines about partitions: damage that a reader met is told once a second."""
        deadline = time.monotonic() + TOLD_S
        for place in places:
            while not any(place in text for text in self.texts) and time.monotonic() < deadline:
                time.sleep(0.02)

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(f"{record.levelname} {record.getMessage()}")
        self.is_traceback = self.is_traceback or bool(record.exc_info)


def tell(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def step(name: str) -> None:
    tell(step=name)


def starts_of(data: Path) -> list[BrokerStart]:
    """Start twice, the second time after the clean stop of the first; once if that is refused."""
    first = started(data, "first", appends=False)
    if first["refused"] is not None:
        return [first]
    return [first, started(data, "second", appends=True)]


ADVICE: Final = re.compile(r"txn log accept-loss (\S+) ([a-zA-Z0-9._-]+-[0-9]+)")
ROUNDS_MAX: Final = 5
"""A loss may show another one: a lost decision leaves transactions open that nobody ends."""


class AcceptedStart(TypedDict):
    """The start after everything was given up that was advised.

    Attributes:
        accepted: Partitions that were given up.
        start: The last start.
        is_stuck: A refusal is left that nothing helps against.
    """

    accepted: list[str]
    start: BrokerStart
    is_stuck: bool


def accepted_start(data: Path) -> AcceptedStart:
    """Accept the losses that a start advises to accept, until one advises nothing."""
    accepted: list[str] = []
    start = started(data, "refused", appends=False)
    for _ in range(ROUNDS_MAX):
        texts = [*start["lines"], start["refused"] or ""]
        advised = sorted({match[2] for text in texts if (match := ADVICE.search(text))})
        if not advised:
            return {"accepted": accepted, "start": start, "is_stuck": False}
        step(f"accept-loss {advised}")
        for name in advised:
            try:
                accept(data, [name], is_dry_run=False)
            except NothingDamagedError:
                return {"accepted": [*accepted, name], "start": start, "is_stuck": True}
        accepted += advised
        start = started(data, "accepted", appends=True)
    return {"accepted": accepted, "start": start, "is_stuck": True}


def verified(data: Path) -> list[Finding]:
    step("verify")
    try:
        outcome = verify(data)
    except (TxnError, OSError) as error:
        return [("", f"{type(error).__name__}: {error}")]
    return [(str(finding.path), finding.what) for finding in outcome.findings]


def started(data: Path, which: str, *, appends: bool) -> BrokerStart:
    lines = Lines()
    logger = logging.getLogger("txn")
    logger.addHandler(lines)
    refused, is_on_purpose, shown = None, True, None
    appended: dict[str, tuple[str, int, int]] = {}
    step(f"{which} start")
    try:
        with txn.Broker(data, durability="commit", properties=SETTINGS) as broker:
            servers = broker.bootstrap_servers
            shown = observe(servers, (GROUP,), IDS, to=lambda at: step(f"{which} start: {at}"))
            lines.await_names(each for each, found in shown["partitions"].items() if found["error"])
            if appends:
                with ShownReader(servers) as observer:
                    appended = {topic: observer.append(topic) for topic in TOPICS}
            step(f"{which} stop")
    except Exception as error:  # any exception: it is for the judge
        refused = f"{type(error).__name__}: {error}"
        is_on_purpose = isinstance(error, TxnError)
    logger.removeHandler(lines)
    return {
        "refused": refused,
        "is_on_purpose": is_on_purpose,
        "shown": shown,
        "appended": appended,
        "lines": lines.texts,
        "is_traceback": lines.is_traceback,
    }


def main() -> None:
    step("ready")
    for line in sys.stdin:
        what, _, path = line.rstrip("\n").partition(" ")
        tell(answer=QUESTIONS[what](Path(path)))


QUESTIONS: Final[dict[str, Callable[[Path], object]]] = {
    "verify": verified,
    "start": starts_of,
    "accept": accepted_start,
}

if __name__ == "__main__":
    main()
