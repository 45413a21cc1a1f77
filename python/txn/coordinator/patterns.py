"""Patterns of strangers, in RE2's language: no pattern can hold up the broker.

RE2 matches any pattern in time linear in the text. With Python's `re` any client could block a
thread for hours by `(a+)+$`. RE2 releases the interpreter's lock while it compiles and matches.
"""

from typing import Protocol


class Pattern(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> object | None:
        """Something, if the whole text matches."""
        ...


def compile_pattern(text: str, *, bytes_max: int, has_groups: bool = True) -> Pattern:
    """Compile a pattern in RE2's language.

    `bytes_max` bounds the memory of the compiled pattern. Without groups, a match is faster.

    Raises:
        ValueError: it is none, or too large; says why.
    """
    # Loaded when somebody first asks: a broker that starts does not need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    options.max_mem = bytes_max
    options.never_capture = not has_groups
    try:
        compiled: Pattern = re2.compile(text, options)  # type: ignore[no-untyped-call]
    except re2.error as error:
        reason = error.args[0]
        raise ValueError(
            reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        ) from error
    finally:
        # The library would remember 128 patterns of strangers.
        re2.purge()  # type: ignore[no-untyped-call]
    return compiled
