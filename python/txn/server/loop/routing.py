"""The routing of requests: which of them a reactor may decide while the control loop sleeps.

A reactor decides the frequent requests of transactions. It continues requests that wait for the
disk when the sync has ended. With `durability=always` every request waits, and the loop decides
all. See `docs/decisions/0005-reactors-stand-in-for-the-control-loop.md`.
"""

from collections.abc import Mapping
from typing import Final

from txn.broker.host import Durability
from txn.wire.api_keys import ApiKey

_JOINS: Final = (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT)

QUICK: Final[Mapping[Durability, tuple[ApiKey, ...]]] = {
    Durability.PROCESS: (*_JOINS, ApiKey.END_TXN),
    Durability.COMMIT: (*_JOINS, ApiKey.END_TXN),
    Durability.ALWAYS: (),
}
"""The frequent requests, where reactors have them."""


def decided_by_reactors(durability: Durability) -> list[int]:
    """List the API keys of the requests that a reactor may decide.

    Where there are some, a reactor may decide on a parked Produce too.
    """
    return [*QUICK[durability]]
