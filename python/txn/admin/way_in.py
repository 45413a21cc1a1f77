"""Reads the servers and the security settings of a connection from Kafka's properties."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from txn.errors import ConfigError
from txn.hints import nearest
from txn.security.client import PLAIN, SecuritySettings
from txn.security.client_names import READ
from txn.security.client_reader import read_security
from txn.security.given_settings import is_about_security

SERVERS: Final = "bootstrap.servers"

_ADDRESS: Final = re.compile(r"[^\s,:]+:[0-9]{1,5}|\[[0-9A-Fa-f:.%\w]+\]:[0-9]{1,5}")


def merged(config: Mapping[str, object] | None, keywords: Mapping[str, object]) -> dict[str, str]:
    """Return properties by Kafka's names; a keyword has `_` for `.`.

    Raises ConfigError: one is given twice, or is neither a text, a number nor a truth value.
    """
    properties: dict[str, str] = {}
    dotted = {name.replace("_", "."): value for name, value in keywords.items()}
    for name, value in [*(config or {}).items(), *dotted.items()]:
        if name in properties:
            raise ConfigError(f"{name} is given twice: give it once", property=name)
        if isinstance(value, bool):
            value = str(value).lower()
        if not isinstance(value, (str, int, float)):
            raise ConfigError(
                f"{name} takes a text or a number, not {type(value).__name__}", property=name
            )
        properties[name] = str(value)
    return properties


def servers_of(given: str | Iterable[str]) -> str:
    """Return bootstrap servers as HOST:PORT[,HOST:PORT…].

    Raises ConfigError: one has another form, or there is none.
    """
    each = given.split(",") if isinstance(given, str) else list(given)
    servers = [server.strip() for server in each]
    for server in servers or [""]:
        if _ADDRESS.fullmatch(server) is None:
            raise ConfigError(
                f"{SERVERS} takes HOST:PORT[,HOST:PORT…], not {server!r}", property=SERVERS
            )
    return ",".join(servers)


def security_of(properties: Mapping[str, str]) -> SecuritySettings:
    """Return the way in. Properties that tune a client have no effect.

    Raises ConfigError: a setting of security is unknown or does not fit, or a name is misspelled.
    """
    require_known(properties)
    return read_security(properties) if properties else PLAIN


def require_known(properties: Iterable[str]) -> None:
    """Refuse a misspelled name; a setting of another family tunes a client that is not used."""
    for name in properties:
        close = None if is_about_security(name) else nearest(name, READ | {SERVERS})
        if close is not None and close != name:
            raise ConfigError(f"unknown setting {name!r}; did you mean {close}?", property=name)
