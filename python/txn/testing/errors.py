"""Errors of the test kit."""

from txn.errors import TxnError


class WaitError(TxnError, TimeoutError):
    """An awaited record, offset or fault did not come in time; the message names the gap."""

    page = "errors/wait"
