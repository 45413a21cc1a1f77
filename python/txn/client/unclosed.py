"""Producers without transactions that a program forgot to close, and the records they still hold.

| the program | effect |
|---|---|
| ends | every such producer is flushed for up to `EXIT_SECONDS`; a loss is logged |
| drops the last reference to one | its records are sent, and a loss that it knows of is logged |

Records on their way keep a dropped producer alive, so its flush at the end of the program counts
them too. A signal that ends Python at once, and `os._exit`, run none of this.
"""

import atexit
import logging
from collections.abc import Collection
from typing import Final, Protocol
from weakref import WeakSet

from txn.client.failures import DeliveryFailure, undelivered

EXIT_SECONDS: Final = 10.0
"""Time that one producer may hold up the end of the interpreter."""

_logger: Final = logging.getLogger("txn.client")


class Holds(Protocol):
    """A producer that holds records."""

    def _close_forgotten(self, timeout: float) -> None:
        """Flush for so many seconds, log a loss, and close."""
        ...


_open: Final[WeakSet[Holds]] = WeakSet()


def watch(producer: Holds) -> None:
    """Close a producer when the interpreter ends.

    Handlers run in reverse order. So this one is registered anew, behind those that close a broker
    of the same process.
    """
    _open.add(producer)
    atexit.unregister(_close_all)
    atexit.register(_close_all)


def log_loss(whose: str, count: int, reason: object) -> None:
    """Log that a forgotten producer has lost records."""
    _logger.error(
        "%s was never closed, and %d of its records %s not known to be stored (%s). Open it in a "
        "`with` block, or call flush() or close()",
        whose,
        count,
        "is" if count == 1 else "are",
        reason,
    )


def log_failures(whose: str, failures: Collection[DeliveryFailure]) -> None:
    """Log records that were not stored and whose producer is collected before it raised that."""
    if failures:
        reason = undelivered(list(failures), whose=whose, in_transaction=False)
        log_loss(whose, len(failures), reason)


def _close_all() -> None:
    for producer in list(_open):
        try:
            producer._close_forgotten(EXIT_SECONDS)
        except Exception:  # of a callback of the program's
            _logger.exception("A producer could not be closed at the end of the interpreter")
