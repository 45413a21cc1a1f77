"""The logger "txn.spark", whose warnings are shown even without any logging set-up.

Python workers and planner processes of Spark have no logging of their own, and most notebooks and
scripts have none either. A warning about lost records must not be silent there. So warnings go to
standard error, which Spark passes on, unless a handler is set.
"""

import logging
import sys
from typing import Final


class _LastResortHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        if not _has_listener(record.name):
            print(self.format(record), file=sys.stderr, flush=True)


def _has_listener(name: str) -> bool:
    """Return True if a handler, other than this one and those that drop lines, gets a record."""
    logger: logging.Logger | None = logging.getLogger(name)
    while logger is not None:
        if any(
            not isinstance(h, logging.NullHandler | _LastResortHandler) for h in logger.handlers
        ):
            return True
        logger = logger.parent if logger.propagate else None
    return False


log: Final = logging.getLogger("txn.spark")
if not any(isinstance(handler, _LastResortHandler) for handler in log.handlers):
    _handler = _LastResortHandler(logging.WARNING)
    _handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(_handler)
