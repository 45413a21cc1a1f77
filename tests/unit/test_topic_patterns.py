"""Patterns of classic groups over a scripted list of topics."""

from typing import Any

from txn.client.topic_patterns import RETRY_S, TopicPatterns

AGE_S = 300.0


class Scripted:
    """A core with one answer after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.subscribed: list[list[str]] = []

    def ask_topics(self, names: list[str] | None) -> int:
        assert names is None
        return 1

    def answer(self, number: int, timeout_ms: int, drops: bool) -> Any:
        return self.answers.pop(0)

    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        assert pattern is None
        self.subscribed.append(topics)


def test_a_list_that_failed_is_asked_for_again_after_a_short_pause() -> None:
    """It waited for metadata.max.age.ms, five minutes by default."""
    core = Scripted(
        ((7, True, "timed out"), [], [], []), (None, [], [], [("orders-eu", 0, 1), ("other", 0, 1)])
    )
    now_s = 100.0
    patterns = TopicPatterns(core, [], ["^orders"], AGE_S, clock=lambda: now_s)
    patterns.look()
    now_s += RETRY_S / 2
    patterns.look()
    assert core.subscribed == []
    now_s += RETRY_S
    patterns.look()
    assert core.subscribed == [["orders-eu"]]
    now_s += AGE_S - 1
    patterns.look()  # no list yet: there is no third answer
