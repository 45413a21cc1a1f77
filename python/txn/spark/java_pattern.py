"""Java's regular expressions, over the names of topics.

`subscribePattern` is Java's in Spark's Kafka source, and the process that plans a query has no
JVM. So a pattern is parsed as Java parses it, and written in the form that Python's `re` reads.
A part that cannot be written so that both find the same names is refused, with its place.

The names of topics make that simple. They are never empty, and have no letter but ASCII's and no
line end. So a class of characters becomes the list of its characters, and the flags `m` and `s`
change nothing. Possessive quantifiers, atomic groups and back references are refused. Without them
the order in which alternatives are tried has no effect on the answer.

Source: java.util.regex.Pattern, Java 17 (its documentation; the tests compare with Java's own).
"""

import re
import string
from functools import lru_cache
from typing import Final

ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "._-")
"""The characters of topics' names, as Kafka allows them."""

NOTHING: Final = r"[^\s\S]"
"""Java's empty class, which no character is in."""

_CLASSES: Final = {
    "d": frozenset(string.digits),
    "s": frozenset[str](),
    "w": ALPHABET - frozenset(".-"),
}
"""Java's classes of one letter; the capital letter is all others."""

_PROPERTIES: Final = {
    **dict.fromkeys(("Lower", "Ll"), frozenset(string.ascii_lowercase)),
    **dict.fromkeys(("Upper", "Lu"), frozenset(string.ascii_uppercase)),
    **dict.fromkeys(("Alpha", "L"), frozenset(string.ascii_letters)),
    **dict.fromkeys(("Digit", "Nd", "N"), frozenset(string.digits)),
    "Alnum": frozenset(string.ascii_letters + string.digits),
    "XDigit": frozenset(string.hexdigits),
    "Punct": frozenset("._-"),
    **dict.fromkeys(("ASCII", "Graph", "Print"), ALPHABET),
    **dict.fromkeys(("Blank", "Cntrl", "Space"), frozenset[str]()),
}
"""The names of `\\p{…}`, as far as names of topics have such characters."""

_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "a": "\a", "e": "\x1b"}

_HARMLESS_FLAGS: Final = frozenset("ims")


class UnsupportedPatternError(ValueError):
    """A pattern is none of Java's, or has a part that Python's `re` does not read as Java does."""


@lru_cache(maxsize=16)
def compiled(pattern: str) -> re.Pattern[str]:
    """The pattern for `re`; its `search` finds the names that Java's `find` finds.

    Raises:
        UnsupportedPatternError: with the part, its place, and the reason.
    """
    translation = _Parser(pattern).whole()
    try:
        return re.compile(translation, re.ASCII)
    except (re.error, OverflowError) as error:
        raise UnsupportedPatternError(str(error)) from None


class _Parser:
    """A pattern that is read from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._ignores_case = False
        self._flags = ""

    def whole(self) -> str:
        """The pattern as `re` reads it."""
        if match := re.match(r"\(\?([a-zA-Z]+)\)", self._text):
            self._flags = self._checked_flags(match[1])
            self._ignores_case = "i" in self._flags
            self._at = match.end()
        found = self._alternatives()
        if self._at < len(self._text):
            raise self._refusal(")", "it closes no group")
        return f"(?{self._flags}){found}" if self._flags else found

    # ------------------------------------------------------------ structure

    def _alternatives(self) -> str:
        found = ""
        while self._at < len(self._text) and self._peek() != ")":
            found += self._take() if self._peek() == "|" else self._quantified()
        return found

    def _quantified(self) -> str:
        begun = self._at
        atom, can_repeat = self._atom()
        match = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}").match(self._text, self._at)
        if match is None:
            return atom
        if not can_repeat:
            self._at = begun
            raise self._refusal(self._text[begun : match.end()], "an assertion is not repeated")
        self._at = match.end()
        lazy = self._take() if self._peek() == "?" else ""
        if self._peek() == "+":
            raise self._refusal(f"{match[0]}+", "possessive quantifiers are not supported")
        if self._peek() in ("*", "?", "{"):
            raise self._refusal(self._peek(), "a quantifier follows a quantifier")
        return f"{atom}{match[0]}{lazy}"

    def _atom(self) -> tuple[str, bool]:
        """The next part, and whether it may be repeated."""
        match self._peek():
            case "(":
                return self._group()
            case "[":
                self._at += 1
                return _listed(self._class()), True
            case "\\":
                return self._escape()
            case "." as dot:
                self._at += 1
                return dot, True
            case "^" | "$" as anchor:
                self._at += 1
                return anchor, False
            case "*" | "+" | "?" | "{" as strange:
                raise self._refusal(strange, "there is nothing to repeat; a literal needs a \\")
            case literal:
                self._at += 1
                return re.escape(literal), True

    def _group(self) -> tuple[str, bool]:
        match = re.compile(
            r"\((?:\?(?:(?P<plain>:|=|!|<=|<!)|<(?P<name>[a-zA-Z][a-zA-Z0-9]*)>"
            r"|(?P<flags>[a-zA-Z]+):))?(?!\?)"
        ).match(self._text, self._at)
        if match is None:
            raise self._refusal(self._text[self._at : self._at + 4], "no such group is supported")
        outer = self._ignores_case
        opening = match[0]
        if match["name"]:
            opening = f"(?P<{match['name']}>"
        if match["flags"]:
            flags = self._checked_flags(match["flags"])
            self._ignores_case = outer or "i" in flags
        begun, self._at = self._at, match.end()
        inner = self._alternatives()
        if self._peek() != ")":
            self._at = begun
            raise self._refusal("(", "its group is not closed")
        self._at += 1
        self._ignores_case = outer
        return f"{opening}{inner})", match["plain"] in (None, ":")

    def _checked_flags(self, flags: str) -> str:
        strange = "".join(sorted(set(flags) - _HARMLESS_FLAGS))
        if strange:
            raise self._refusal(f"(?{flags}", f"the flag {strange[0]} is not supported")
        return "".join(sorted(set(flags)))

    # ------------------------------------------------------------ characters

    def _escape(self) -> tuple[str, bool]:
        letter = self._text[self._at + 1 : self._at + 2]
        match letter:
            case "Q":
                end = self._text.find("\\E", self._at + 2)
                quoted = self._text[self._at + 2 : end if end >= 0 else None]
                if len(quoted) != 1 and self._text[end + 2 : end + 3] in tuple("*+?{") and end >= 0:
                    raise self._refusal("\\Q", "a quantifier behind quoted text is not supported")
                self._at = end + 2 if end >= 0 else len(self._text)
                return re.escape(quoted), len(quoted) == 1
            case "b" | "B" | "A":
                self._refuse_braces()
                self._at += 2
                return f"\\{letter}", False
            case "z" | "Z":
                self._at += 2
                return "\\Z", False
            case _:
                found = self._escaped()
                return (_listed(found), True) if isinstance(found, frozenset) else (found, True)

    def _refuse_braces(self) -> None:
        if self._text[self._at + 2 : self._at + 3] == "{":
            raise self._refusal(self._text[self._at : self._at + 3], "no such boundary is known")

    def _escaped(self) -> frozenset[str] | str:
        """An escape of one character, as `re` has it, or of a class."""
        character = self._escaped_character()
        if character is not None:
            return re.escape(character)
        letter = self._text[self._at + 1 : self._at + 2]
        if letter.lower() in _CLASSES:
            self._at += 2
            found = _CLASSES[letter.lower()]
            return found if letter.islower() else ALPHABET - found
        match = re.compile(r"\\([pP])\{(\w+)\}").match(self._text, self._at)
        if match is None or match[2] not in _PROPERTIES:
            shown = match[0] if match else f"\\{letter}"
            raise self._refusal(shown, "this escape is not supported")
        if self._ignores_case:
            raise self._refusal(match[0], "it is not supported together with the flag i")
        self._at = match.end()
        found = _PROPERTIES[match[2]]
        return found if match[1] == "p" else ALPHABET - found

    def _escaped_character(self) -> str | None:
        match = re.compile(
            r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|([^a-zA-Z0-9])|([tnrfae]))"
        ).match(self._text, self._at)
        if match is None:
            return None
        self._at = match.end()
        if match[3]:
            return match[3]
        return _CONTROLS[match[4]] if match[4] else chr(int(match[1] or match[2], 16))

    def _class(self) -> frozenset[str]:
        """The characters of a class, whose `[` was read."""
        begun = self._at - 1
        is_negated = self._peek() == "^"
        if is_negated:
            self._at += 1
        if self._peek() == "]":
            raise self._refusal("[]", "an empty class is not supported; write \\]")
        found: frozenset[str] = frozenset()
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
                found &= self._right_of_and()
            elif self._peek() == "[":
                self._at += 1
                found |= self._class()
            else:
                found |= self._item()
            is_empty = False
        self._at += 1
        return ALPHABET - found if is_negated else found

    def _right_of_and(self) -> frozenset[str]:
        """The class behind `&&`: one in brackets, or the characters up to the end."""
        self._at += 2
        found: frozenset[str] = frozenset()
        if self._peek() == "[":
            self._at += 1
            found = self._class()
        else:
            begun = self._at
            while self._at < len(self._text) and self._peek() not in ("]", "[", "&", "^"):
                found |= self._item()
            if self._at == begun:
                raise self._refusal("&&", "nothing follows it that is supported")
        if self._peek() != "]" and not (self._is_at("&&") and self._text[self._at - 1] == "]"):
            raise self._refusal("&&", "only one class in brackets, or characters, may follow it")
        return found

    def _item(self) -> frozenset[str]:
        """The next character of a class, range of characters, or escape."""
        first = self._character()
        if isinstance(first, frozenset):
            return first
        following = self._text[self._at + 1 : self._at + 2]
        if self._peek() == "-" and following not in ("]", "["):
            self._at += 1
            if following == "&":
                raise self._refusal("-&", "write \\& to end a range there")
            last = self._character()
            if isinstance(last, frozenset) or last < first:
                raise self._refusal("-", "it is no range of characters")
            return self._cased(frozenset(each for each in ALPHABET if first <= each <= last))
        return self._cased(frozenset(first))

    def _character(self) -> frozenset[str] | str:
        if self._peek() != "\\":
            return self._take()
        character = self._escaped_character()
        if character is not None:
            return character
        found = self._escaped()
        assert isinstance(found, frozenset)  # characters were read above
        return found

    def _cased(self, found: frozenset[str]) -> frozenset[str]:
        if not self._ignores_case:
            return found & ALPHABET
        return frozenset(case for each in found for case in (each.lower(), each.upper())) & ALPHABET

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


def _listed(found: frozenset[str]) -> str:
    return f"[{re.escape(''.join(sorted(found)))}]" if found else NOTHING
