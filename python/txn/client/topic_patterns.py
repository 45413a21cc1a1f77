"""Subscriptions of classic groups by pattern: their members can only name topics.

The client lists the topics, and subscribes to those that match. It looks again every
`metadata.max.age.ms`. A pattern is RE2 and matches the beginning of a name, as with librdkafka;
groups of KIP-848 match whole names. Kafka's internal topics are left out.
"""

import time
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import re2

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state"})

RETRY_S: Final = 1.0
"""The pause after a list that failed."""


class ListsTopics(Protocol):
    """What `_core.NativeConsumer` does for a pattern; its stub describes the calls."""

    def ask_topics(self, names: list[str] | None) -> int:
        """Ask for topics."""
        ...

    def answer(self, number: int, timeout_ms: int, drops: bool) -> Any:
        """Return the answer to a question."""
        ...

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Join the group, or change the subscription."""
        ...


class TopicPatterns:
    """The patterns of one subscription, and the topics that match.

    Args:
        core: Lists topics, and subscribes.
        names: Topics that are named in full.
        patterns: Begin with `^`.
        age_s: Seconds between two looks.
        clock: Monotonic seconds.

    Raises:
        ValueError: a pattern cannot be read.
    """

    def __init__(
        self,
        core: ListsTopics,
        names: Iterable[str],
        patterns: Iterable[str],
        age_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._names = list(names)
        options = re2.Options()
        options.log_errors = False
        text = "|".join(f"(?:{pattern})" for pattern in patterns)
        try:
            self._pattern = re2.compile(text, options)  # type: ignore[no-untyped-call]
        except re2.error as error:
            raise ValueError(_text_of(error)) from None
        self._age_s = age_s
        self._clock = clock
        self._next_s = 0.0
        self._asked: int | None = None
        self._subscribed: list[str] = []

    @property
    def is_asking(self) -> bool:
        """True if the topics are being listed."""
        return self._asked is not None

    def look(self) -> None:
        """List the topics if it is time to, and subscribe if others match; never wait."""
        if self._asked is None:
            if self._clock() < self._next_s:
                return
            self._asked = self._core.ask_topics(None)
        answer = self._core.answer(self._asked, 0, drops=False)
        if answer is None:
            return
        self._asked = None
        error, _, _, topics = answer
        pause_s = self._age_s if error is None else min(RETRY_S, self._age_s)
        self._next_s = self._clock() + pause_s
        if error is not None:
            return
        found = {name for name, code, _ in topics if not code and self._is_match(name)}
        wanted = sorted({*self._names, *found})
        if wanted and wanted != self._subscribed:
            self._core.subscribe(wanted, None)
            self._subscribed = wanted

    def _is_match(self, name: str) -> bool:
        return name not in INTERNAL and self._pattern.match(name) is not None


def _text_of(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
