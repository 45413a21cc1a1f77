"""Patterns of subscriptions in classic groups: the member itself looks for the topics.

A coordinator of a classic group knows no patterns. So the member lists the cluster's topics, joins
with those that match, and lists them again every `metadata.max.age.ms`. As with librdkafka, a
pattern begins with ^ and matches the beginning of a name. Groups of KIP-848 send their pattern to
the broker instead.

Source: librdkafka's `subscribe`; Java's `subscribe(Pattern)`.
"""

import re
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from confluent_kafka import KafkaError, KafkaException

INTERNAL: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics of Kafka's own, which no pattern finds."""


class ListsTopics(Protocol):
    """The calls of `_core.NativeConsumer` that find topics and join with them."""

    def ask_topics(self, names: list[str] | None) -> int:
        """Ask for topics; None: all."""

    def answer(
        self, number: int, timeout_ms: int, drops: bool
    ) -> (
        tuple[
            tuple[int, bool, str] | None,
            list[tuple[str, int, int, int, int, str]],
            list[tuple[int, str, int]],
            list[tuple[str, int, list[tuple[int, int, int]]]],
        ]
        | None
    ):
        """The answer to a question; None while there is none."""

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Join the group, or change the subscription."""


class PatternTopics:
    """The topics that match a subscription, found again and again.

    Args:
        core: The client that lists the topics, and joins the group with them.
        names: Topics that the program named.
        patterns: Regular expressions of Python, for the beginning of a name.
        interval_s: Seconds between two lists.
        clock: Monotonic seconds.

    Raises:
        KafkaException: a pattern is not a regular expression.
    """

    def __init__(
        self,
        core: ListsTopics,
        names: Sequence[str],
        patterns: Sequence[str],
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._core = core
        self._names = frozenset(names)
        self._patterns = [_compiled(pattern) for pattern in patterns]
        self._interval_s = interval_s
        self._clock = clock
        self._question: int | None = core.ask_topics(None)
        self._next_s = clock() + interval_s
        self._subscribed: frozenset[str] = frozenset()

    def refresh(self) -> None:
        """Join with the topics of an answer, if they are others; ask again if it is time to."""
        if self._question is None:
            if self._clock() < self._next_s:
                return
            self._question = self._core.ask_topics(None)
        answer = self._core.answer(self._question, 0, drops=False)
        if answer is None:
            return
        self._question = None
        error, _, _, topics = answer
        if error is not None:
            self._next_s = self._clock() + min(1.0, self._interval_s)
            return
        self._next_s = self._clock() + self._interval_s
        names = (name for name, code, _ in topics if not code)
        found = self._names | set(filter(self._is_wanted, names))
        if found and found != self._subscribed:
            self._subscribed = found
            self._core.subscribe(sorted(found), None)

    def _is_wanted(self, name: str) -> bool:
        return name not in INTERNAL and any(each.match(name) for each in self._patterns)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise KafkaException(
            KafkaError(KafkaError._INVALID_ARG, f"{pattern!r} is not a regular expression: {error}")
        ) from error
