"""The error of a request that is not written as the console reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

from txn.errors import ConfigError


class NotUnderstoodError(ConfigError):
    """The address or the form has another form; other ConfigErrors name things that are missing."""


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Let a parameter of the user be read; its fault becomes a NotUnderstoodError with its name."""
    try:
        yield
    except ConfigError as error:
        raise NotUnderstoodError(f"parameter {name}: {error.message}") from None
