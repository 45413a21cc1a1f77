"""Log lines: an event and its facts, `broker.started address=127.0.0.1:9092`.

Inside a program they go to the standard library's logger "txn", silent until somebody
gives it a handler; `txn serve` sends them to standard error.
"""

import logging
import sys

import structlog

_logger = logging.getLogger("txn")
_logger.addHandler(logging.NullHandler())

log: structlog.stdlib.BoundLogger = structlog.wrap_logger(
    _logger,
    wrapper_class=structlog.stdlib.BoundLogger,
    processors=[
        structlog.stdlib.filter_by_level,
        structlog.processors.format_exc_info,
        structlog.processors.LogfmtRenderer(key_order=["event"], drop_missing=True),
        lambda _logger, _name, line: str(line).removeprefix("event="),
    ],
)


def show_on_stderr(level: int = logging.INFO) -> None:
    """Send the log lines to standard error; for programs, not for libraries."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    _logger.addHandler(handler)
    _logger.setLevel(level)
