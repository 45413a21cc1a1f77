"""The security settings that a client was given, asked for by all names that a value goes by.

Each setting is known, and no value has two spellings that differ: else the constructor raises. No
message has a value that could be a secret.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.security.client import Store
from txn.security.client_names import FAMILIES, READ, REFUSED, WITHOUT_EFFECT

WORD: Final = re.compile(r"[A-Za-z0-9._-]{0,40}")
"""A value that a message repeats."""

PEM_BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]+)-----END \1-----\s*")


def is_about_security(name: str) -> bool:
    """Return True if `read_security` reads or refuses a property of this name."""
    return name.lower().startswith(FAMILIES)


def error_about(prefix: str, name: str, rest: str, value: object = None) -> ConfigError:
    """An error about a setting: its name with the prefix, then the rest of the sentence."""
    full = prefix + name
    attribute = "option" if prefix else "property"
    return ConfigError(f"{full} {rest}", **{attribute: full, "value": value})


def why_refused(name: str) -> str | None:
    """The reason that a setting cannot be honoured; None for other names."""
    for refused, why in REFUSED.items():
        if name == refused or (refused.endswith(".") and name.startswith(refused)):
            return why
    return None


class GivenSettings:
    """The settings of one client; a value is asked for by all names that it goes by."""

    def __init__(self, properties: Mapping[str, str], prefix: str) -> None:
        self.prefix = prefix
        self.values: dict[str, str] = {}
        """Value by name, in small letters."""
        names: dict[str, str] = {}
        for name, value in properties.items():
            known = name.lower()
            # Kafka turns the check of the host off by the empty text.
            is_given = value != "" or known == "ssl.endpoint.identification.algorithm"
            if is_given and is_about_security(name):
                first = names.setdefault(known, name)
                self.values[known] = value
                self.one({first: properties[first], name: value})
        for name in self.values:
            self._require_known(name)

    def error(self, name: str, rest: str, value: object = None) -> ConfigError:
        """Return an error about a setting: its name, then the rest of the sentence."""
        return error_about(self.prefix, name, rest, value)

    @property
    def given(self) -> Iterable[str]:
        """The names of the settings with a value, in small letters."""
        return [name for name, value in self.values.items() if value]

    def _require_known(self, name: str) -> None:
        if name in READ or name in WITHOUT_EFFECT:
            return
        why = why_refused(name)
        if why is not None:
            raise self.error(name, f"is refused: {why}")
        known = [self.prefix + each for each in sorted(READ)]
        hint = did_you_mean(self.prefix + name, known) or ". Remove it"
        raise ConfigError(
            f"unknown security setting {self.prefix + name!r}{hint}",
            **{"option" if self.prefix else "property": self.prefix + name},
        )

    def text(self, *names: str) -> str | None:
        """The value that goes by these names."""
        return self.one({name: self.values[name] for name in names if name in self.values})

    def one(self, values: Mapping[str, str]) -> str | None:
        """The value that all these names have; None without a name. Raises ConfigError."""
        if len(set(values.values())) > 1:
            first, second = list(values)[:2]
            raise self.error(
                first,
                f"and {self.prefix}{second} have different values and mean the same: give one",
            )
        return next(iter(values.values()), None)

    def choice(self, name: str, allowed: Iterable[str]) -> str | None:
        """One of some words, in any case of letters."""
        text = self.text(name)
        words = {word.lower(): word for word in allowed}
        if text is None or text.strip().lower() in words:
            return None if text is None else words[text.strip().lower()]
        listed = ", ".join(words.values())
        hint = did_you_mean(text, words.values())
        raise self.refused(name, text, f"it takes {listed}{hint}")

    def refused(self, name: str, text: str, rest: str) -> ConfigError:
        """Return an error about a word; a text that is none may be a secret in a wrong place."""
        if WORD.fullmatch(text):
            return self.error(name, f"cannot be {text!r}: {rest}", text)
        return self.error(name, f"has a value that is left out here, for it is no word: {rest}")

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        chosen = self.choice(name, ("true", "false"))
        return default if chosen is None else chosen == "true"

    def store(self, location: str, text: str, password: str | None = None) -> Store | None:
        """Certificates or a key, by one of two names."""
        secret = None if password is None else self.text(password)
        path, pem = self.values.get(location), self.values.get(text)
        if path is not None and pem is not None:
            raise self.error(location, f"and {self.prefix}{text} are two sources: give one")
        if path is not None:
            return Store(self.prefix + location, location=path, password=secret)
        if pem is not None:
            return Store(self.prefix + text, text=as_pem(pem), password=secret)
        return None

    def pem(self, name: str) -> Store | None:
        """Certificates or a key that the setting itself has."""
        text = self.values.get(name)
        return None if text is None else Store(self.prefix + name, text=as_pem(text))

    def single(self, *stores: Store | None) -> Store | None:
        """The one store that is given; None without one. Raises ConfigError: two differ."""
        given = [store for store in stores if store is not None]
        places = {(store.location, store.text) for store in given}
        if len(places) > 1:
            raise self.error(
                given[0].setting.removeprefix(self.prefix),
                f"and {given[1].setting} are two sources: give one",
            )
        return given[0] if given else None


def as_pem(text: str) -> str:
    """Put the line ends back that a one-line setting has lost."""

    def block(found: re.Match[str]) -> str:
        body = "".join(found[2].split())
        lines = [body[start : start + 64] for start in range(0, len(body), 64)]
        return "\n".join([f"-----BEGIN {found[1]}-----", *lines, f"-----END {found[1]}-----\n"])

    return PEM_BLOCK.sub(block, text.replace("\\n", "\n"))
