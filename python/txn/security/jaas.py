"""`sasl.jaas.config`: the login module of one line, and its options.

Pure. The grammar is that of Java's StreamTokenizer as Kafka sets it up:

    CLASS required|requisite|sufficient|optional  KEY=VALUE …  ;

A value in single or double quotes may hold anything; `\\"`, `\\\\`, `\\n` and octal escapes are
Java's. A bare word may not begin with a digit. Comments are `//`, `/* */` and, as in Java, `/`
to the end of the line.

A line holds secrets, and a misplaced quote makes any of its words one. So no message repeats its
text: only the position of a fault.

Sources: JaasConfig and JaasContext, Apache Kafka 4.2; java.io.StreamTokenizer.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from txn.errors import ConfigError

PROPERTY: Final = "sasl.jaas.config"
FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})

_TOKEN: Final = r"""
      (?P<blank>[\x00-\x20]+ | //[^\n\r]* | /\*.*?\*/ | /(?!\*)[^\n\r]*)
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\xa0-\U0010ffff-]*)
    | "(?P<double>(?:[^"\\\n\r]|\\.)*)"
    | '(?P<single>(?:[^'\\\n\r]|\\.)*)'
    | (?P<sign>[=;])
"""
"""One token; compiled for the first line, since that takes some milliseconds."""

_ESCAPE: Final = re.compile(r"\\(?:([0-3]?[0-7]{1,2})|(.))", re.DOTALL)
_ESCAPED: Final = dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True))


@dataclass(frozen=True, slots=True, repr=False)
class LoginModule:
    """A login module: its class, and its options, which may be secrets."""

    class_name: str
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"LoginModule({self.name})"

    @property
    def name(self) -> str:
        """The class without its package."""
        return self.class_name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, a quoted text or one of `=` and `;`; `position` counts from 1."""

    kind: str
    text: str
    position: int

    def is_sign(self, sign: str) -> bool:
        """A quoted `;` is none."""
        return self.kind == "sign" and self.text == sign


def parse_jaas(text: str) -> LoginModule:
    """Read the one login module of a line.

    Raises:
        ConfigError: it is not of the grammar, or has more than one module.
    """
    tokens = list(_tokens(text))
    if len(tokens) < 2 or tokens[0].kind == "sign":
        raise _fault("it begins with the class of a login module and `required`", 1)
    name, flag, *rest = tokens
    if flag.text.lower() not in FLAGS:
        raise _fault("`required` follows the class of the login module", flag.position)
    options: dict[str, str] = {}
    while rest and not rest[0].is_sign(";"):
        key, equals, value = (*rest, None, None)[:3]
        assert key is not None, "there is a token"
        if key.kind == "sign" or equals is None or value is None:
            raise _fault("an option is written NAME=VALUE, and `;` ends the line", key.position)
        if not equals.is_sign("=") or value.kind == "sign":
            raise _fault(
                'an option is written NAME="VALUE"; quotes are needed around a value with other '
                "characters than letters and digits",
                key.position,
            )
        if key.text in options:
            raise _fault("an option is there twice", key.position)
        options[key.text] = value.text
        rest = rest[3:]
    if not rest:
        raise _fault("a semicolon has to end it", len(text))
    if len(rest) > 1:
        raise _fault("it may hold one login module, and goes on behind its semicolon", 1)
    return LoginModule(name.text, options)


def _tokens(text: str) -> Iterator[_Token]:
    token = re.compile(_TOKEN, re.VERBOSE | re.DOTALL)
    at = 0
    while at < len(text):
        found = token.match(text, at)
        if found is None:
            raise _fault(
                "a character there is neither quoted nor part of a name; a value goes in quotes "
                'that are closed: password="…"',
                at + 1,
            )
        kind = found.lastgroup
        assert kind is not None, "every alternative is a group"
        if kind in ("double", "single"):
            yield _Token("quoted", _ESCAPE.sub(_unescaped, found[kind]), at + 1)
        elif kind != "blank":
            yield _Token(kind, found[kind], at + 1)
        at = found.end()


def _unescaped(found: re.Match[str]) -> str:
    octal, other = found.groups()
    return chr(int(octal, 8)) if octal else _ESCAPED.get(other, other)


def _fault(rule: str, position: int) -> ConfigError:
    return ConfigError(
        f"{PROPERTY} cannot be read at character {position}: {rule}. Its text is left "
        "out of this message, for it holds secrets",
        property=PROPERTY,
    )
