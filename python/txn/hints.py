"""The known name that a user may have meant, if a close one exists: a distant one would mislead."""

from collections.abc import Iterable
from typing import Final

CLOSE: Final = 0.8
"""Least similarity, of 1: two letters of ten may differ."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that is closest to one that is not known, if any is close."""
    import difflib  # only a mistake needs it

    by_plain = {_plain(each): each for each in known}
    close = difflib.get_close_matches(_plain(name), by_plain, n=1, cutoff=CLOSE)
    return by_plain[close[0]] if close else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return what to add to a message about an unknown name; nothing where none is close."""
    close = nearest(name, known)
    return "" if close is None else f"; did you mean {close}?"


def _plain(name: str) -> str:
    return name.lower().replace("_", ".").replace("-", ".")
