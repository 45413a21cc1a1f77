"""Members of enumerations that each transaction uses many times.

CPython 3.11 needs 0.1 us to look up a member by its class, and nearly nothing for a name of the
module. Without these names the decisions of a transaction of three partitions take 4 % more
instructions. `coordinator.transaction.states` has such names for two states, `broker.shard` for a
phase. Other modules name members by their class.
"""

from typing import Final

from txn.broker.host import Durability
from txn.coordinator.transaction.connections import ConnectionUse
from txn.coordinator.transaction.states import TxnResult
from txn.wire.error_codes import ErrorCode

NONE: Final = ErrorCode.NONE
ALWAYS: Final = Durability.ALWAYS
COMMIT: Final = Durability.COMMIT
PROCESS: Final = Durability.PROCESS
TO_COMMIT: Final = TxnResult.COMMIT
TO_ABORT: Final = TxnResult.ABORT
TRANSACTION: Final = ConnectionUse.TRANSACTION
