"""The routing of requests: which of them a reactor may decide while the control loop sleeps.

Reactors decide the frequent requests of transactions that need a moment each. EndTxn is one of
them only where it waits for no disk. The end of a wait wakes the loop anyway, so a reactor would
gain nothing. See `docs/decisions/0005-reactors-stand-in-for-the-control-loop.md`.
"""

from typing import Final

from txn.broker.host import Durability
from txn.wire.api_keys import ApiKey

QUICK: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)
"""Decided in a moment with every `durability`."""


def decided_by_reactors(durability: Durability) -> list[int]:
    """List the API keys of the requests that a reactor may decide."""
    return [*QUICK, ApiKey.END_TXN] if durability is Durability.PROCESS else [*QUICK]
