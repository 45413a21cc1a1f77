"""Patterns of subscriptions: accepted and matched as RE2/J does, and bounded for any text."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.coordinator.group.subscribed_patterns import (
    PATTERN_LENGTH_MAX,
    check_pattern,
    matching_topics,
)

TOPICS: Final = ("orders", "orders-eu", "Orders", "invoices.v1", "__consumer_offsets", "a", "ab")

MATCHES: Final = {
    "orders": {"orders"},
    "orders.*": {"orders", "orders-eu"},
    "order": set(),
    "^orders$": {"orders"},
    r"\Aorders\z": {"orders"},
    "(?i)orders": {"orders", "Orders"},
    "orders|a": {"orders", "a"},
    r"\Qinvoices.v1\E": {"invoices.v1"},
    r"[[:alpha:]]+": {"orders", "Orders", "a", "ab"},
    r"\pL+": {"orders", "Orders", "a", "ab"},
    r"(?P<first>a)(?<second>b)?": {"a", "ab"},
    r"[^_].*\d": {"invoices.v1"},
    "(?U)a.*": {"a", "ab"},
    ".*": set(TOPICS),
    "": set(),
    r"\Q\C": set(),
    "(a|ab)(c|bcd)?": {"a", "ab"},
}

REFUSED: Final = [
    *(
        "(",
        "a)",
        "[a",
        "*a",
        "a**",
        "a++",
        "a{2,1}",
        "a{1001}",
        "(?=a)",
        "(?!a)",
        "(?<=a)",
        "(?>a)",
    ),
    *("\\", r"\1", r"\Z", r"\C", r"a\\\C", r"\Qa\E\C", r"\h", r"\e", r"\cA", r"[\b]", r"[z-a]"),
    *("(?P=n)", "(?x)a", "(?#c)a", "(?P<n>a)(?P<n>b)", "(?P<n-x>a)", r"\p{IsGreek}", "[[:foo:]]"),
    *(r"\pL{1000}", "((a{100}){10}){2}", r"\x{110000}", "\ud800"),
]
"""Each is refused by RE2/J too, but the last line, for its size."""


@pytest.mark.parametrize("pattern", MATCHES)
def test_a_pattern_matches_whole_names(pattern: str) -> None:
    check_pattern(pattern)
    assert matching_topics(pattern, TOPICS) == MATCHES[pattern]


@pytest.mark.parametrize("pattern", REFUSED)
def test_a_text_that_is_no_pattern_is_refused_in_the_words_of_Kafka(pattern: str) -> None:
    words = re.escape(f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: ")
    with pytest.raises(ValueError, match=f"^{words}.+\\.$"):
        check_pattern(pattern)
    with pytest.raises(ValueError, match=r"\w"):
        matching_topics(pattern, TOPICS)


def test_a_pattern_is_bounded_in_its_length_and_in_its_compiled_size() -> None:
    check_pattern("|".join(f"a-topic-of-a-tenant-{number:07}" for number in range(1_100)))
    check_pattern("a" * PATTERN_LENGTH_MAX)
    for pattern in ("a" * (PATTERN_LENGTH_MAX + 1), "[" * 9_000, r"\pL?" * 8_000):
        with pytest.raises(ValueError, match="is not a valid regular expression") as refused:
            check_pattern(pattern)
        assert len(str(refused.value)) < len(pattern) + 300


@pytest.mark.parametrize("pattern", ["(a+)+$", "(a?){500}a{500}", "(a|aa)+$", "(.*a){25}b"])
def test_a_pattern_that_backtracks_for_ever_elsewhere_is_matched(pattern: str) -> None:
    assert matching_topics(pattern, ["a" * 248 + "!"] * 50) == frozenset()


@given(st.text(st.sampled_from(r"ab\QECpL()[]{}^$|*+?.,-:1Pi<>x é") | st.characters(), max_size=40))
def test_any_text_is_a_pattern_or_is_refused_with_words(text: str) -> None:
    try:
        check_pattern(text)
    except ValueError:
        return
    assert matching_topics(text, TOPICS) <= set(TOPICS)


names = st.text("abc.-_", max_size=8)


@st.composite
def patterns(draw: st.DrawFn, depth: int = 3) -> str:
    """A pattern that Python's `re` reads alike."""
    if depth == 0 or draw(st.booleans()):
        return draw(st.sampled_from(["a", "b", "c", r"\.", "-", "_", ".", "[ab]", "[^a]", r"\w"]))
    parts = [draw(patterns(depth - 1)) for _ in range(draw(st.integers(1, 3)))]
    joined = draw(st.sampled_from(["", "|"])).join(parts)
    return f"(?:{joined}){draw(st.sampled_from(['', '*', '+', '?', '{2}', '{1,3}', '*?']))}"


@given(patterns(), st.lists(names, max_size=20))
def test_a_pattern_matches_the_names_that_a_backtracking_engine_finds(
    pattern: str, topics: list[str]
) -> None:
    expected = {name for name in topics if re.fullmatch(pattern, name)}
    assert matching_topics(pattern, topics) == expected
