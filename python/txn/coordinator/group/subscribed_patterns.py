"""The patterns to which members of a consumer group subscribe, and the topics that match them.

Pure. The broker resolves a member's pattern, in the language of RE2. Apache Kafka uses RE2/J, its
translation into Java. Topic names have ASCII characters only; for them both agree, but for these:

- `\\C`, a byte, and two groups of one name are refused here as in RE2/J. C++ accepts them.
- Repetitions within repetitions may ask for 1,000 copies at most. RE2/J multiplies without a bound.
- A backslash before a character that is not ASCII is refused. It could match no topic.
- A name of a group may have letters that are not ASCII. RE2/J refuses them.
- A pattern that takes more than `PATTERN_BYTES_MAX` when compiled is refused. Some thousand names
  of topics fit.

Sources: KIP-848 (SubscribedTopicRegex), RE2/J 1.8 as in Apache Kafka 4.4.
"""

import re
from collections.abc import Iterable
from typing import Final

from txn.coordinator.patterns import Pattern, compile_pattern

PATTERN_BYTES_MAX: Final = 1 << 20
"""Memory of one compiled pattern. It bounds the time of a match: some 100 ms for a longest name."""

PATTERN_LENGTH_MAX: Final = 32_767
"""Characters of a pattern, as many as a text of the protocol can have."""

REASON_LENGTH_MAX: Final = 200
"""Characters of a reason, which repeats a part of the pattern."""

_PARTS: Final = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|[^\\]+", re.DOTALL)
"""Literal text between `\\Q` and `\\E`, or an escape, or the text up to one."""


_NAMED_GROUP: Final = re.compile(r"\(\?P?<(\w+)>")


def _compiled(text: str) -> Pattern:
    """A pattern that RE2/J accepts too; raises ValueError with the reason."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ValueError(f"longer than {PATTERN_LENGTH_MAX} characters")
    groups: set[str] = set()
    for part in _PARTS.findall(text):
        if part == r"\C":
            raise ValueError(r"invalid escape sequence: \C")
        for name in _NAMED_GROUP.findall(part) if part[0] != "\\" else ():
            if name in groups:
                raise ValueError(f"duplicate capture group name: {name}")
            groups.add(name)
    return compile_pattern(text, bytes_max=PATTERN_BYTES_MAX, has_groups=False)


def check_pattern(text: str) -> None:
    """Refuse a text that is no pattern. A large one takes a second: call this beside the loop.

    Raises:
        ValueError: it is none, or too large; says so in Kafka's sentence, with RE2's reason.
    """
    try:
        _compiled(text)
    except ValueError as error:
        reason = str(error)[:REASON_LENGTH_MAX]
        raise ValueError(
            f"SubscribedTopicRegex `{text}` is not a valid regular expression: {reason}."
        ) from error


def matching_topics(pattern: str, names: Iterable[str]) -> frozenset[str]:
    """The names that match a pattern as a whole.

    Cost: linear in the names, for each at most the length times the compiled pattern. The
    interpreter's lock is free while RE2 works, so a thread beside the control loop may call this.

    Raises:
        ValueError: `check_pattern` would refuse the pattern; says why.
    """
    compiled = _compiled(pattern)
    return frozenset(name for name in names if compiled.fullmatch(name) is not None)
