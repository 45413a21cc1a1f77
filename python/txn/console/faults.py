"""The error of a request that is not written as the console reads it."""

from collections.abc import Iterator
from contextlib import contextmanager

from txn.errors import ConfigError


class NotUnderstoodError(ConfigError):
    """The address or the form has another form; other ConfigErrors name things that are missing."""


@contextmanager
def understood() -> Iterator[None]:
    """Let a text of the user be read; its fault becomes a NotUnderstoodError."""
    try:
        yield
    except ConfigError as error:
        raise NotUnderstoodError(error.message) from None
