"""Patterns for `subscribePattern`, beside Java's own `Pattern`."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from txn.java_pattern import UnsupportedPatternError, of_names

pytestmark = pytest.mark.spark

NAMES = (
    *("a", "B", "0", "_", "-", ".", "ab", "aB", "a-b", "a.b", "b_0", "A0", "aa", "aab", "bab"),
    *("orders", "Orders-1", "orders.dead-letters", "payments_v2", "x-0.y_1", "ORDERS"),
)


def found(pattern: str) -> list[str]:
    return [name for name in NAMES if of_names(pattern).search(name)]


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("ord", ["orders", "orders.dead-letters"]),
        ("^orders$", ["orders"]),
        (r"\Aorders\z", ["orders"]),
        (r"orders\.", ["orders.dead-letters"]),
        (r"\Qa.b\E", ["a.b"]),
        (r"(?i)^orders$", ["orders", "ORDERS"]),
        (r"^(?i:o)rders$", ["orders"]),
        (r"^[a-z&&[^b]].$", ["ab", "aB", "aa"]),
        (r"^\p{Upper}\p{Digit}$", ["A0"]),
        (r"^(?<first>a)(?!b).", ["aB", "a-b", "a.b", "aa", "aab"]),
        ("^[^a-z]+$", ["B", "0", "_", "-", ".", "A0", "ORDERS"]),
        (r"\x61\u0062", ["ab", "aab", "bab"]),
    ],
)
def test_pattern_finds_names(pattern: str, names: list[str]) -> None:
    assert found(pattern) == names


@pytest.mark.parametrize(
    ("pattern", "story"),
    [
        (r"(a)\1", r"'\\1' at character 4: this escape is not supported"),
        ("a*+", r"'\*\+' at character 3: possessive quantifiers are not supported"),
        ("(?>a)", r"'\(\?>a' at character 1: no such group is supported"),
        ("a(?i)b", r"no such group is supported"),
        ("(?x)a b", r"the flag x is not supported"),
        ("*.orders", r"'\*' at character 1: there is nothing to repeat; a literal needs a"),
        ("{a}", r"there is nothing to repeat"),
        ("[^a[b]]", r"\[ and && in a negated class are not supported"),
        ("[]a]", r"an empty class is not supported"),
        ("[a", r"'\[' at character 1: its class is not closed"),
        ("a)", r"'\)' at character 2: it closes no group"),
        ("(a", r"'\(' at character 1: its group is not closed"),
        (r"\p{Greek}", r"this escape is not supported"),
        ("[z-a]", r"it is no range of characters"),
        ("(?<=a+)b", r"look-behind requires fixed-width pattern"),
    ],
)
def test_pattern_that_cannot_be_the_same_is_refused(pattern: str, story: str) -> None:
    with pytest.raises(UnsupportedPatternError, match=story):
        of_names(pattern)


Finder = Callable[[str], list[str] | None]


@pytest.fixture(scope="module")
def java_finds(spark: SparkSession) -> Finder:
    """Gives the names in which Java finds a pattern; None if the pattern is none of Java's."""
    expressions: Any = spark._jvm.java.util.regex.Pattern  # type: ignore[union-attr]

    def finds(pattern: str) -> list[str] | None:
        try:
            expression = expressions.compile(pattern)
        except Py4JJavaError:
            return None
        return [name for name in NAMES if expression.matcher(name).find()]

    return finds


characters = st.sampled_from(sorted("aABbz0_-."))
escapes = st.sampled_from(
    [r"\.", r"\-", r"\d", r"\D", r"\w", r"\W", r"\s", r"\S", r"\x61", r"\p{Alpha}", r"\P{Digit}"]
)
items = characters | escapes | st.sampled_from(["a-z", "A-b", "0-9", "--a", "&", "+", "^", "]-a"])
plain_class = st.tuples(st.sampled_from(["", "^"]), st.lists(items, min_size=1, max_size=3)).map(
    lambda parts: f"[{parts[0]}{''.join(parts[1])}]"
)
classes = plain_class | st.tuples(items, st.sampled_from(["", "&&"]), plain_class | items).map(
    lambda parts: f"[{''.join(parts)}]"
)
atoms = characters | escapes | classes | st.sampled_from([r"\Qa.\E", r"\b", "^", "$", r"\z", "."])


def larger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["(", "(?:", "(?=", "(?!", "(?i:", "(?<n>", "(?<=", "(?>"])
    quantifiers = st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?", "+?", "*+"])
    return (
        st.tuples(groups, parts).map(lambda each: f"{each[0]}{each[1]})")
        | st.tuples(parts, quantifiers).map("".join)
        | st.tuples(parts, parts).map("".join)
        | st.tuples(parts, parts).map("|".join)
    )


patterns = st.tuples(
    st.sampled_from(["", "", "(?i)"]), st.recursive(atoms, larger, max_leaves=6)
).map("".join)
junk = st.text(st.sampled_from(sorted(r"ab0-.\[]{}()^$&|*+?:<!=iQEpd,1")), min_size=1, max_size=8)


@settings(deadline=None, max_examples=400)
@example(pattern="[a&&b&&c]")
@example(pattern="[a-z&&[^b]&&[a-c]]")
@example(pattern="[[:alpha:]]")
@example(pattern=r"\Qa\E*")
@example(pattern="(?i)[^A-Z]")
@example(pattern="a{,2}")
@example(pattern="(a*)*b")
@given(pattern=patterns | junk)
def test_same_names_are_found_as_by_java_or_none(java_finds: Finder, pattern: str) -> None:
    """A pattern that is refused finds none; every other finds the names that Java finds."""
    try:
        own = found(pattern)
    except UnsupportedPatternError:
        return
    assert own == java_finds(pattern)
