"""Batches that a broker's disk refuses: `txn produce` ends at the first of them.

librdkafka retries such a batch until its time is over, and reports nothing before. Only the log
lines of its debug context `msg` show each answer.
"""

import re
from typing import Final

from txn.client.library_log import LibraryLog
from txn.errors import RejectedError

KAFKA_STORAGE_ERROR: Final = 56

SETTINGS: Final = {"debug": "msg"}

DEBUG: Final = 10
"""The level of Python's that a line of a debug context has; others are 20 and more."""

REFUSED: Final = re.compile(
    r"(\S+ \[\d+\]): MessageSet with .* encountered error: Broker: Disk error when trying to access"
)
"""librdkafka's line of a refused batch (`rd_kafka_handle_Produce_error`)."""


class RefusedBatches(LibraryLog):
    """Takes librdkafka's log lines, and raises an error at the first batch that a disk refused."""

    def __init__(self) -> None:
        super().__init__()
        self._has_raised = False

    def log(self, level: int, form: str, facility: str, client: str, text: str) -> None:
        """Pass on a line that is none of the debug context. Raises RejectedError."""
        refused = REFUSED.search(text)
        if refused is not None and not self._has_raised:
            self._has_raised = True  # the transaction is aborted next
            topic, _, number = refused[1].rpartition(" ")
            raise RejectedError(
                f"KAFKA_STORAGE_ERROR: the broker cannot write to {topic}-{number.strip('[]')}. "
                "Its disk may be full, or the partition damaged: the broker's log names the "
                "reason. Run the command again once it is mended",
                code=KAFKA_STORAGE_ERROR,
                name="KAFKA_STORAGE_ERROR",
            )
        if level > DEBUG:
            super().log(level, form, facility, client, text)
