"""Java's regular expressions, read as Java reads them and written for Python's `re`.

Kafka and Spark accept Java's patterns in settings that decide on access and on topics. Python has
the same syntax, with other meanings in part. Its `\\d`, `\\w`, `\\s` and `(?i)` are about Unicode,
and its `.` and `$` know one line end. So a pattern is parsed, and each class of characters becomes
a list of ranges. A part that cannot have the same meaning in both is refused, with its position:
possessive quantifiers, atomic groups, back references and the flags d, m, u, x, U, among others.

Both try the rest in the same order, so groups hold the same parts of a text.

The names of topics are simpler: they are never empty, and have only ASCII letters and no line end.
`of_names` also accepts parts whose meaning is the same only for such names: `\\b`, the categories
of Unicode, and the flag m.

Source: java.util.regex.Pattern, Java 17 (its documentation; the tests compare with Java's own).
"""

import re
import string
import sys
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

Ranges = tuple[tuple[int, int], ...]
"""Characters as ranges of code points: in order, apart, and with both ends included."""


def _joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    joined: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)


def _others(found: Ranges) -> Ranges:
    """All characters that are not among these."""
    ends = [-1, *(end for each in found for end in each), sys.maxunicode + 1]
    return tuple(
        (before + 1, after - 1)
        for before, after in zip(ends[::2], ends[1::2], strict=True)
        if before + 1 < after
    )


def _common(one: Ranges, other: Ranges) -> Ranges:
    return _others(_joined((*_others(one), *_others(other))))


def _of(characters: str) -> Ranges:
    return _joined((ord(each), ord(each)) for each in characters)


_CLASSES: Final = {
    "d": _of(string.digits),
    "s": _of(" \t\n\v\f\r"),
    "w": _of(string.ascii_letters + string.digits + "_"),
}
"""Java's classes of one letter; the capital letter is all others."""

_PROPERTIES: Final = {
    "Lower": _of(string.ascii_lowercase),
    "Upper": _of(string.ascii_uppercase),
    "Alpha": _of(string.ascii_letters),
    "Digit": _CLASSES["d"],
    "Alnum": _of(string.ascii_letters + string.digits),
    "XDigit": _of(string.hexdigits),
    "Punct": _of(string.punctuation),
    "ASCII": ((0, 0x7F),),
    "Graph": ((0x21, 0x7E),),
    "Print": ((0x20, 0x7E),),
    "Blank": _of(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "Space": _CLASSES["s"],
}
"""The names of `\\p{…}` that are about ASCII."""

_CATEGORIES: Final = {
    "Ll": _PROPERTIES["Lower"],
    "Lu": _PROPERTIES["Upper"],
    "L": _PROPERTIES["Alpha"],
    **dict.fromkeys(("Nd", "N"), _CLASSES["d"]),
}
"""Categories of Unicode, as far as names of topics have such characters."""

_LINE_ENDS: Final = _of("\n\r\x85\u2028\u2029")

_BEFORE_END: Final = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
"""Java's `$`: the end, or a line end that is the last."""

_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}


class UnsupportedPatternError(ValueError):
    """A pattern is none of Java's, or has a part that Python's `re` does not read as Java does."""


@lru_cache(maxsize=16)
def of_names(pattern: str) -> re.Pattern[str]:
    """The pattern for `re`; its `search` finds the names of topics that Java's `find` finds.

    Raises:
        UnsupportedPatternError: with the part, its place, and the reason.
    """
    return _compiled(_Parser(pattern, is_for_names=True))


def of_texts(pattern: str) -> re.Pattern[str]:
    """The pattern for `re`; it finds the same in every text, and has the same groups.

    Raises:
        UnsupportedPatternError: with the part, its place, and the reason.
    """
    return _compiled(_Parser(pattern, is_for_names=False))


def _compiled(parser: "_Parser") -> re.Pattern[str]:
    try:
        return re.compile(parser.whole())
    except (re.error, OverflowError) as error:
        raise UnsupportedPatternError(str(error)) from None
    except RecursionError:
        raise UnsupportedPatternError("its groups are nested too deep") from None


class _Part(NamedTuple):
    """A part of a pattern, as `re` reads it."""

    text: str
    may_be_empty: bool = False
    can_repeat: bool = True


def _assertion(text: str) -> _Part:
    return _Part(text, may_be_empty=True, can_repeat=False)


class _Parser:
    """A pattern that is read from left to right. The flags in force are written out."""

    def __init__(self, text: str, *, is_for_names: bool) -> None:
        self._text = text
        self._at = 0
        self._is_for_names = is_for_names
        self._flags: frozenset[str] = frozenset()
        self._groups = 0

    def whole(self) -> str:
        """The pattern as `re` reads it."""
        if match := re.match(r"\(\?([a-zA-Z]+)\)", self._text):
            self._flags = self._checked_flags(match[1])
            self._at = match.end()
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._refusal(")", "it closes no group")
        return found.text

    # ------------------------------------------------------------ structure

    def _alternatives(self) -> _Part:
        found, may_be_empty, is_branch_empty = "", False, True
        while self._at < len(self._text) and self._peek() != ")":
            if self._peek() == "|":
                found += self._take()
                may_be_empty |= is_branch_empty
                is_branch_empty = True
            else:
                part = self._quantified()
                found += part.text
                is_branch_empty &= part.may_be_empty
        return _Part(found, may_be_empty=may_be_empty or is_branch_empty)

    def _quantified(self) -> _Part:
        begun, groups_before = self._at, self._groups
        atom = self._atom()
        match = re.compile(r"[*+?]|\{[0-9]+(?:,[0-9]*)?\}").match(self._text, self._at)
        if match is None:
            return atom
        if not atom.can_repeat:
            self._at = begun
            raise self._refusal(self._text[begun : match.end()], "an assertion is not repeated")
        if atom.may_be_empty and self._groups > groups_before and not self._is_for_names:
            # After a turn that finds nothing the two differ on the part that a group holds.
            self._at = begun
            raise self._refusal("(", "a group that may be empty is not repeated; write (?:")
        self._at = match.end()
        lazy = self._take() if self._peek() == "?" else ""
        if self._peek() == "+":
            raise self._refusal(f"{match[0]}+", "possessive quantifiers are not supported")
        if self._peek() in ("*", "?", "{"):
            raise self._refusal(self._peek(), "a quantifier follows a quantifier")
        is_optional = re.match(r"[*?]|\{0+[,}]", match[0]) is not None
        return _Part(f"{atom.text}{match[0]}{lazy}", atom.may_be_empty or is_optional)

    def _atom(self) -> _Part:
        match self._peek():
            case "(":
                return self._group()
            case "[":
                self._at += 1
                return _Part(_listed(self._class()))
            case "\\":
                return self._escape()
            case ".":
                self._at += 1
                return _Part(_listed(_others(() if "s" in self._flags else _LINE_ENDS)))
            case "^" | "$" as anchor:
                self._at += 1
                return _assertion(r"\A" if anchor == "^" else _BEFORE_END)
            case "*" | "+" | "?" | "{" as strange:
                raise self._refusal(strange, "there is nothing to repeat; a literal needs a \\")
            case literal:
                self._at += 1
                return _Part(self._literally(literal))

    def _group(self) -> _Part:
        match = re.compile(
            r"\((?:\?(?:(?P<plain>:|=|!|<=|<!)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>"
            r"|(?P<flags>[a-zA-Z]+):))?(?!\?)"
        ).match(self._text, self._at)
        if match is None:
            raise self._refusal(self._text[self._at : self._at + 4], "no such group is supported")
        outer = self._flags
        opening = match[0]
        if match["name"]:
            opening = f"(?P<{match['name']}>"
        if match["flags"]:
            opening = "(?:"
            self._flags = outer | self._checked_flags(match["flags"])
        begun, self._at = self._at, match.end()
        inner = self._alternatives()
        if self._peek() != ")":
            self._at = begun
            raise self._refusal("(", "its group is not closed")
        self._at += 1
        self._flags = outer
        self._groups += opening == "(" or match["name"] is not None
        text = f"{opening}{inner.text})"
        if match["plain"] in (None, ":"):
            return _Part(text, may_be_empty=inner.may_be_empty)
        return _assertion(text)

    def _checked_flags(self, flags: str) -> frozenset[str]:
        strange = sorted(set(flags) - set("ims" if self._is_for_names else "is"))
        if strange:
            raise self._refusal(f"(?{flags}", f"the flag {strange[0]} is not supported")
        return frozenset(flags)

    # ------------------------------------------------------------ characters

    def _escape(self) -> _Part:
        letter = self._text[self._at + 1 : self._at + 2]
        match letter:
            case "Q":
                end = self._text.find("\\E", self._at + 2)
                quoted = self._text[self._at + 2 : end if end >= 0 else None]
                if len(quoted) != 1 and self._text[end + 2 : end + 3] in tuple("*+?{") and end >= 0:
                    raise self._refusal("\\Q", "a quantifier behind quoted text is not supported")
                self._at = end + 2 if end >= 0 else len(self._text)
                return _Part(self._literally(quoted), not quoted, can_repeat=len(quoted) == 1)
            case "b" | "B" if self._is_for_names:
                self._refuse_braces()
                self._at += 2
                return _assertion(f"\\{letter}")
            case "A" | "z" | "Z":
                self._at += 2
                return _assertion({"A": r"\A", "z": r"\Z", "Z": _BEFORE_END}[letter])
            case _:
                found = self._escaped()
                return _Part(self._literally(found) if isinstance(found, str) else _listed(found))

    def _refuse_braces(self) -> None:
        if self._text[self._at + 2 : self._at + 3] == "{":
            raise self._refusal(self._text[self._at : self._at + 3], "no such boundary is known")

    def _escaped(self) -> Ranges | str:
        """An escape of one character, or of a class."""
        character = self._escaped_character()
        if character is not None:
            return character
        letter = self._text[self._at + 1 : self._at + 2]
        if letter.lower() in _CLASSES:
            self._at += 2
            found = _CLASSES[letter.lower()]
            return found if letter.islower() else _others(found)
        match = re.compile(r"\\([pP])\{(\w+)\}").match(self._text, self._at)
        properties = _PROPERTIES | (_CATEGORIES if self._is_for_names else {})
        if match is None or match[2] not in properties:
            shown = match[0] if match else f"\\{letter}"
            raise self._refusal(shown, "this escape is not supported")
        if "i" in self._flags:
            raise self._refusal(match[0], "it is not supported together with the flag i")
        self._at = match.end()
        found = properties[match[2]]
        return found if match[1] == "p" else _others(found)

    def _escaped_character(self) -> str | None:
        match = re.compile(
            r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([^a-zA-Z0-9])|([tnrfae]))"
        ).match(self._text, self._at)
        if match is None:
            return None
        if match[2] and 0xD800 <= int(match[2], 16) < 0xE000:
            raise self._refusal(match[0], "write the character, or give it another escape")
        self._at = match.end()
        if match[3]:
            return match[3]
        return _CONTROLS[match[4]] if match[4] else chr(int(match[1] or match[2], 16))

    def _class(self) -> Ranges:
        """The characters of a class, whose `[` was read."""
        begun = self._at - 1
        is_negated = self._peek() == "^"
        if is_negated:
            self._at += 1
        if self._peek() == "]":
            raise self._refusal("[]", "an empty class is not supported; write \\]")
        found: Ranges = ()
        is_empty = True
        while self._peek() != "]":
            if self._at >= len(self._text):
                self._at = begun
                raise self._refusal("[", "its class is not closed")
            if is_negated and (self._peek() == "[" or self._is_at("&&")):
                raise self._refusal("[^", "[ and && in a negated class are not supported")
            if self._is_at("&&"):
                if is_empty:
                    raise self._refusal("&&", "nothing stands in front of it")
                found = _common(found, self._right_of_and())
            elif self._peek() == "[":
                self._at += 1
                found = _joined((*found, *self._class()))
            else:
                found = _joined((*found, *self._item()))
            is_empty = False
        self._at += 1
        return _others(found) if is_negated else found

    def _right_of_and(self) -> Ranges:
        """The class behind `&&`: one in brackets, or the characters up to the end."""
        self._at += 2
        found: Ranges = ()
        if self._peek() == "[":
            self._at += 1
            found = self._class()
        else:
            begun = self._at
            while self._at < len(self._text) and self._peek() not in ("]", "[", "&", "^"):
                found = _joined((*found, *self._item()))
            if self._at == begun:
                raise self._refusal("&&", "nothing follows it that is supported")
        if self._peek() != "]" and not (self._is_at("&&") and self._text[self._at - 1] == "]"):
            raise self._refusal("&&", "only one class in brackets, or characters, may follow it")
        return found

    def _item(self) -> Ranges:
        """The next character of a class, range of characters, or escape."""
        first = self._character()
        if not isinstance(first, str):
            return first
        following = self._text[self._at + 1 : self._at + 2]
        if self._peek() == "-" and following not in ("]", "["):
            self._at += 1
            if following == "&":
                raise self._refusal("-&", "write \\& to end a range there")
            last = self._character()
            if not isinstance(last, str) or last < first:
                raise self._refusal("-", "it is no range of characters")
            return self._cased(ord(first), ord(last))
        return self._cased(ord(first), ord(first))

    def _character(self) -> Ranges | str:
        return self._escaped() if self._peek() == "\\" else self._take()

    def _cased(self, first: int, last: int) -> Ranges:
        """A range, with the other case of ASCII's letters under the flag i."""
        found: Ranges = ((first, last),)
        if "i" not in self._flags:
            return found
        letters = [each for each in string.ascii_letters if first <= ord(each) <= last]
        return _joined((*found, *_of("".join(letters).swapcase())))

    def _literally(self, text: str) -> str:
        if "i" not in self._flags:
            return re.escape(text)
        return "".join(_listed(self._cased(ord(each), ord(each))) for each in text)

    # ------------------------------------------------------------ reading

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        taken = self._peek()
        if not taken:
            raise self._refusal("", "the pattern ends too early")
        self._at += 1
        return taken

    def _is_at(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _refusal(self, part: str, why: str) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"'{part}' at character {self._at + 1}: {why}")


def _listed(found: Ranges) -> str:
    """The class of these characters. Python has no empty one, so that is written otherwise."""
    listed = "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in found)
    return f"[{listed}]" if listed else r"[^\s\S]"
