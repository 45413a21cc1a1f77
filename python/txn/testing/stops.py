"""The kinds of stops of `crash_everywhere`, and the requests at which each is possible.

| stop | event at its step |
|---|---|
| `kill` | SIGKILL, before the broker gets the request |
| `kill after` | SIGKILL, after the broker executed the request and before the program's answer |
| `lose answer` | the broker executes the request, and the connection breaks |
| `refuse` | the broker refuses the records of a Produce |
| `fence` | another producer takes over the transactional id |
| `time out` | the program stands still for longer than its transaction may stay open |
| `rebalance` | the group's members lose their partitions |
| `pause` | the program stands still; a second instance takes over and works; the first goes on |
| `aborted input` | all input is written again behind it, in transactions that are aborted |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from txn.testing.faults import Effect
from txn.testing.story import WRITES, Step
from txn.wire.api_keys import ApiKey

IN_TRANSACTION: Final = (
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.PRODUCE,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.END_TXN,
)

STOPS: Final[Mapping[str, tuple[Effect, tuple[ApiKey, ...]]]] = {
    "kill": (Effect.HOLD_REQUEST, (*WRITES, ApiKey.FETCH)),
    "kill after": (Effect.HOLD_ANSWER, WRITES),
    "lose answer": (Effect.LOSE_ANSWER, WRITES),
    "refuse": (Effect.REFUSE, (ApiKey.PRODUCE,)),
    "fence": (Effect.HOLD_REQUEST, IN_TRANSACTION),
    "time out": (Effect.HOLD_REQUEST, IN_TRANSACTION),
    "rebalance": (Effect.HOLD_REQUEST, (*IN_TRANSACTION, ApiKey.OFFSET_COMMIT)),
    "pause": (Effect.HOLD_REQUEST, (*IN_TRANSACTION, ApiKey.OFFSET_COMMIT)),
    "aborted input": (Effect.HOLD_REQUEST, (ApiKey.FETCH,)),
}
"""Each stop with the effect that the proxy has, and the requests at which it makes sense."""

HAPPENS: Final = {
    "kill": "here it is killed; the broker does not get this",
    "kill after": "the broker does this, and the program is killed before it hears of it",
    "lose answer": "the broker does this, and the connection breaks before the answer",
    "refuse": "refused by INVALID_RECORD",
    "fence": "another producer took the transactional id before",
    "time out": "the program stood still before, until its transaction expired",
    "rebalance": "the group rebalanced before",
    "pause": "here it stands still, with this under way",
    "aborted input": "before, all input was written again, in transactions that were aborted",
}


@dataclass(frozen=True)
class Point:
    """One stop at one step."""

    stop: str
    step: Step

    def __str__(self) -> str:
        return f"{self.stop} at {self.step}"
