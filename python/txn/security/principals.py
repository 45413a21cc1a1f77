"""Principals of client certificates, by Kafka's `ssl.principal.mapping.rules`.

A rule is `DEFAULT`, which takes the certificate's subject as it is, or `RULE:pattern/replacement/`.
The pattern has to match the whole subject. `L` or `U` behind the rule makes lower or upper case.
The first rule that applies counts; if none does, the client is refused.

Pure.

Deviation from Apache Kafka: patterns are those of Python, which has few constructs of Java's less.

Source: KIP-371; Apache Kafka 4.2, `SslPrincipalMapper`.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple, NoReturn

from txn.errors import ConfigError

USER: Final = "User:"
SETTING: Final = "ssl.principal.mapping.rules"

_RULE: Final = re.compile(r"DEFAULT|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
_SEPARATOR: Final = re.compile(r"\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$([0-9])([0-9]*)", re.DOTALL)


class _Rule(NamedTuple):
    """One rule; `pattern`: None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        replacement = self.replacement
        named = self.pattern.sub(lambda matched: _expand(replacement, matched), subject)
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
    return rules or [_Rule(None, "", "")]


def _rule(matched: re.Match[str]) -> _Rule:
    if matched[0] == "DEFAULT":
        return _Rule(None, "", "")
    try:
        pattern = re.compile(matched[1])
    except re.error as error:
        _refuse(f"has the pattern {matched[1]!r}: {error}")
    return _Rule(pattern, matched[2], matched[3])


def _expand(replacement: str, matched: re.Match[str]) -> str:
    """Java's replacements: `$1` is a group, and a reference to no group stands for itself."""
    groups = matched.re.groups

    def reference(found: re.Match[str]) -> str:
        if found[1] is not None:
            return found[1]
        number, rest = int(found[2]), found[3]
        if number > groups:
            return found[0]
        while rest and number * 10 + int(rest[0]) <= groups:
            number, rest = number * 10 + int(rest[0]), rest[1:]
        return (matched[number] or "") + rest

    return _REFERENCE.sub(reference, replacement)


def _refuse(reason: str) -> NoReturn:
    raise ConfigError(
        f"broker property {SETTING} {reason}: it takes DEFAULT and RULE:pattern/replacement/, "
        "with L or U behind it",
        property=SETTING,
    )
