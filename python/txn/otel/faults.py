"""Faults of tracing are logged by `txn.otel`, and never reach the program.

A header that is no text, a sampler, a propagator or a processor may raise. Then the span or the
link is lost. Records and the result of a transaction stay the same.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_logger: Final = logging.getLogger("txn.otel")


def log_fault(doing: str) -> None:
    """Log the exception that is being handled."""
    _logger.warning("tracing failed: %s", doing, exc_info=True)


@contextmanager
def log_faults(doing: str) -> Iterator[None]:
    """Log an exception of the `with` block, and go on behind it; a signal's passes."""
    try:
        yield
    except Exception:
        log_fault(doing)
