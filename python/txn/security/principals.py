"""Principals of client certificates, by Kafka's `ssl.principal.mapping.rules`.

A rule is `DEFAULT`, which uses the certificate's subject unchanged, or `RULE:pattern/replacement/`.
The pattern has to match the whole subject. `L` or `U` behind the rule makes lower or upper case.
The first rule that applies counts; if none does, the client is refused.

Pure.

Deviation from Apache Kafka: a rule that would fail for each client that it applies to is refused at
the start. So is a pattern with a construct that `txn.java_pattern` does not support.

Source: KIP-371; Apache Kafka 4.2, `SslPrincipalMapper`.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from txn import java_pattern
from txn.errors import ConfigError
from txn.java_pattern import UnsupportedPatternError

USER: Final = "User:"
SETTING: Final = "ssl.principal.mapping.rules"

_RULE: Final = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SEPARATOR: Final = re.compile(r"\s*(?:,\s*|$)", re.ASCII)
_PART: Final = re.compile(
    r"\\(?P<escaped>.)|\$(?P<number>[0-9]+)|\$\{(?P<name>[a-zA-Z][a-zA-Z0-9]*)\}|(?P<plain>[^\\$]+)",
    re.DOTALL,
)
"""A part of a replacement, as Java's `replaceAll` reads it."""

_NUMBERED: Final = re.compile(r"\$([1-9][0-9]*)")
_NUMBER_MAX: Final = (1 << 31) - 1

Template = tuple[str | int, ...]
"""A replacement: texts, and the numbers of groups."""


class _Rule(NamedTuple):
    """One rule; `pattern`: None for DEFAULT."""

    pattern: re.Pattern[str] | None
    template: Template
    case: str

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        named = _replaced(subject, self.pattern, self.template)
        if named is None:
            return None
        match self.case:
            case "L":
                return named.lower()
            case "U":
                return named.upper()
        return named


def principal_mapper(text: str) -> Callable[[str], str | None]:
    """Read mapping rules; return a call that gives the principal of a subject, or None.

    Raises:
        ConfigError: the rules are not written so.
    """
    rules = _read(text)

    def principal_of(subject: str) -> str | None:
        for rule in rules:
            name = rule.apply(subject)
            if name is not None:
                return f"{USER}{name}"
        return None

    return principal_of


def _read(text: str) -> list[_Rule]:
    text = text.strip()
    rules = []
    at = 0
    while at < len(text):
        matched = _RULE.match(text, at)
        separator = _SEPARATOR.match(text, matched.end()) if matched else None
        if matched is None or separator is None:
            _refuse(f"cannot be read from {text[at:]!r} on")
        rules.append(_rule(matched))
        at = separator.end()
    return rules or [_Rule(None, (), "")]


def _rule(matched: re.Match[str]) -> _Rule:
    if matched[0] == "DEFAULT":
        return _Rule(None, (), "")
    try:
        pattern = java_pattern.of_texts(matched[1])
    except UnsupportedPatternError as error:
        _refuse(f"has the pattern {matched[1]!r}: {error}")
    return _Rule(pattern, _template(matched[2], pattern), matched[3])


def _template(replacement: str, pattern: re.Pattern[str]) -> Template:
    parts: list[str | int] = []
    escaped = _escaped(replacement, pattern.groups)
    at = 0
    while at < len(escaped):
        found = _PART.match(escaped, at)
        if found is None:
            _refuse_reference(replacement, "a $ that names no group needs a \\")
        at = found.end()
        if found["number"]:
            number, rest = int(found["number"][0]), found["number"][1:]
            while rest and number * 10 + int(rest[0]) <= pattern.groups:
                number, rest = number * 10 + int(rest[0]), rest[1:]
            if number > pattern.groups:
                _refuse_reference(replacement, f"the pattern has no group {number}")
            parts += (number, rest)
        elif found["name"]:
            if found["name"] not in pattern.groupindex:
                _refuse_reference(replacement, f"the pattern has no group {found['name']}")
            parts.append(pattern.groupindex[found["name"]])
        else:
            parts.append(found["escaped"] or found["plain"])
    return tuple(parts)


def _escaped(replacement: str, groups: int) -> str:
    """A reference to no group stands for itself, if the pattern has groups.

    Kafka counts without the escapes that it has put in. So a second such reference stays one, and
    is refused; and so is one that was escaped before.
    """
    escaped = replacement
    for found in _NUMBERED.finditer(replacement):
        if int(found[1]) > _NUMBER_MAX:
            _refuse_reference(replacement, f"{found[1]} is no number of a group")
        if 0 < groups < int(found[1][0]):
            escaped = f"{escaped[: found.start()]}\\{escaped[found.start() :]}"
    return escaped


def _replaced(subject: str, pattern: re.Pattern[str], template: Template) -> str | None:
    """Replace as Java does: `re.sub` looks for more where it has found nothing.

    None where Java would go on in the middle of a character beyond 16 bits.
    """
    parts: list[str] = []
    copied = at = 0
    while at <= len(subject) and (matched := pattern.search(subject, at)):
        parts += (subject[copied : matched.start()], _expand(template, matched))
        copied = at = matched.end()
        if copied == matched.start():
            if subject[at : at + 1] > "\uffff":
                return None
            at += 1
    return "".join((*parts, subject[copied:]))


def _expand(template: Template, matched: re.Match[str]) -> str:
    return "".join(part if isinstance(part, str) else matched[part] or "" for part in template)


def _refuse_reference(replacement: str, reason: str) -> NoReturn:
    _refuse(f"has the replacement {replacement!r}: {reason}")


def _refuse(reason: str) -> NoReturn:
    raise ConfigError(
        f"broker property {SETTING} {reason}: it takes DEFAULT and RULE:pattern/replacement/, "
        "with L or U behind it",
        property=SETTING,
    )
