"""Kafka's config providers: `${file:PATH:KEY}`, `${directory:PATH:FILE}` and `${env:NAME}`.

They keep secrets out of a file of settings. `config.providers` names them, and
`config.providers.NAME.class` says which one a name is. `FileConfigProvider` finds a key in a file
of Java's properties. `DirectoryConfigProvider` reads a whole file, `EnvVarConfigProvider` a
variable.

`param.allowed.paths` bounds the files, `param.allowlist.pattern` the variables.

Deviation from Apache Kafka 4.2: a reference that cannot be resolved stops the start. Kafka keeps
its text as the value, and so a password that everybody can guess.

Sources: KIP-297, KIP-421, KIP-887, KIP-993.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NoReturn

from txn import java_pattern
from txn.config import split_list
from txn.errors import ConfigError
from txn.java_pattern import UnsupportedPatternError
from txn.server.settings.small_files import read_small_file, reason_of

SETTING: Final = "config.providers"

_REFERENCE: Final = re.compile(r"\$\{([^}]*?):(?:([^}]*?):)?([^}]*?)\}")
_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_WELL_KNOWN: Final = frozenset({"file", "directory", "env"})
"""Names that everybody gives to the three."""

Provider = Callable[[str, str], str]
"""The value of a path and a key. Raises OSError or ValueError, whose text is the reason."""


def is_about_providers(name: str) -> bool:
    """Say whether a setting declares config providers."""
    return name == SETTING or name.startswith(f"{SETTING}.")


def resolved(texts: Mapping[str, str]) -> dict[str, str]:
    """Fill the references in all settings, and leave out those that declare the providers.

    Raises:
        ConfigError: a provider is unknown, or a reference cannot be resolved.
    """
    providers = _declared(texts)
    return {
        name: _filled(name, text, providers)
        for name, text in texts.items()
        if not is_about_providers(name)
    }


def _declared(texts: Mapping[str, str]) -> dict[str, Provider]:
    names = split_list(texts.get(SETTING, ""))
    providers = {name: _provider(name, texts) for name in names}
    known = {f"{SETTING}.{name}.class" for name in names}
    for setting in texts:
        is_param = any(setting.startswith(f"{SETTING}.{name}.param.") for name in names)
        if is_about_providers(setting) and setting not in {SETTING, *known} and not is_param:
            _refuse(setting, f"belongs to no provider that {SETTING} names")
    return providers


def _provider(name: str, texts: Mapping[str, str]) -> Provider:
    prefix = f"{SETTING}.{name}."
    class_name = texts.get(f"{prefix}class", "")
    params = {
        setting.removeprefix(f"{prefix}param."): text
        for setting, text in texts.items()
        if setting.startswith(f"{prefix}param.")
    }
    makers = {"FileConfigProvider": _file, "DirectoryConfigProvider": _directory}
    makers["EnvVarConfigProvider"] = _environment
    maker = makers.get(class_name.removeprefix(_PACKAGE))
    if maker is None:
        _refuse(f"{prefix}class", f"names no provider of this broker: {', '.join(makers)}")
    unknown = params.keys() - {"allowlist.pattern" if maker is _environment else "allowed.paths"}
    if unknown:
        _refuse(f"{prefix}param.{min(unknown)}", "is unknown here")
    return maker(params)


def _file(params: Mapping[str, str]) -> Provider:
    import javaproperties

    def value(path: str, key: str) -> str:
        _require_allowed(path, params)
        text = read_small_file(path).decode()
        try:
            properties = javaproperties.loads(text)
        except ValueError:  # its message repeats a part of the file
            raise ValueError("it is no file of Java's properties") from None
        if key not in properties:
            raise ValueError("the file has no such key")
        return properties[key]

    return value


def _directory(params: Mapping[str, str]) -> Provider:
    def value(path: str, key: str) -> str:
        if not key or "/" in key or key in (".", ".."):
            raise ValueError("it names no file of the directory")
        _require_allowed(path, params)
        return read_small_file(Path(path, key)).decode()

    return value


def _environment(params: Mapping[str, str]) -> Provider:
    try:
        allowed = java_pattern.of_texts(params.get("allowlist.pattern", ".*"))
    except UnsupportedPatternError as error:
        raise ConfigError(
            f"the allowlist.pattern of a provider in {SETTING} cannot be read: {error}",
            property=SETTING,
        ) from None

    def value(path: str, key: str) -> str:
        if path:
            raise ValueError("a variable has no path")
        if not allowed.fullmatch(key):
            raise ValueError("allowlist.pattern leaves it out")
        if key not in os.environ:
            raise ValueError("the environment has no such variable")
        return os.environ[key]

    return value


def _require_allowed(path: str, params: Mapping[str, str]) -> None:
    """Refuse a path outside of `allowed.paths`. Links count as the place that they lead to."""
    allowed = split_list(params.get("allowed.paths", ""))
    real = Path(os.path.realpath(path))
    if allowed and not any(real.is_relative_to(os.path.realpath(one)) for one in allowed):
        raise ValueError("allowed.paths leaves it out")


def _filled(name: str, text: str, providers: Mapping[str, Provider]) -> str:
    def value(found: re.Match[str]) -> str:
        provider, path, key = found[1], found[2] or "", found[3]
        if provider in providers:
            try:
                return providers[provider](path, key)
            except (OSError, ValueError) as error:
                reason = "it is no text" if isinstance(error, UnicodeError) else reason_of(error)
                _refuse(name, f"refers to {found[0]}, which cannot be resolved: {reason}")
        if providers or provider in _WELL_KNOWN:
            _refuse(name, f"refers to {found[0]}, and {SETTING} names no provider {provider}")
        return found[0]

    return _REFERENCE.sub(value, text)


def _refuse(setting: str, reason: str) -> NoReturn:
    raise ConfigError(f"broker property {setting} {reason}", property=setting)
