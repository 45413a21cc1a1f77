"""Producer ids, given out one by one from blocks that the controller allocates.

Invariant: a block is durable before its first id is given out, so no id is given out twice, not
even after a power failure. A restart throws away the rest of its block.

The next block is asked for before the last id of this one is taken, so that hardly a producer waits
for it. Source: KIP-730; Kafka asks for the next block at the same point.
"""

from collections.abc import Callable

from txn.broker.host import Host
from txn.errors import StorageError

PREFETCH_AT = 10
"""The next block is asked for once less than the tenth part of this one is left."""


class NoProducerIdError(StorageError):
    """The next block is on its way; wait for `call_when_ready` and take the id then."""


class ProducerIdManager:
    """Gives out unused producer ids. All calls come from one thread."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._block = range(0)
        self._next_block = range(0)
        self._prefetch_at = 0
        """The number of ids left at which the next block is asked for."""
        self._is_asked = False
        self._waiting: list[Callable[[StorageError | None], object]] = []

    def generate(self) -> int:
        """The next producer id. Raises NoProducerIdError."""
        if not self._block:
            if not self._next_block:
                self._ask()
            self._block, self._next_block = self._next_block, range(0)
            self._prefetch_at = len(self._block) // PREFETCH_AT
        if not self._block:
            raise NoProducerIdError("the next block of producer ids is on its way")
        taken, self._block = self._block[0], self._block[1:]
        if len(self._block) < self._prefetch_at and not self._next_block:
            self._ask()
        return taken

    def generate_blocking(self) -> int:
        """The next producer id; blocks, for a start. Raises StorageError."""
        if not self._block and not self._next_block:
            self._arrive(self._host.allocate_producer_ids_now())
        return self.generate()

    def call_when_ready(self, call: Callable[[StorageError | None], object]) -> None:
        """Make a call once an id is there, or with the reason why none can be allocated.

        Another taker may be faster: then the caller asks again.
        """
        if self._block or self._next_block:
            call(None)
            return
        self._waiting.append(call)
        self._ask()

    def _ask(self) -> None:
        if not self._is_asked:
            self._is_asked = True
            self._host.allocate_producer_ids(self._arrive)

    def _arrive(self, block: range | StorageError) -> None:
        """Handle a block, or the reason why there is none; the next caller asks again."""
        self._is_asked = False
        waiting, self._waiting = self._waiting, []
        refusal = block if isinstance(block, StorageError) else None
        if isinstance(block, range):
            self._next_block = block
        failure: Exception | None = None
        for call in waiting:
            try:
                call(refusal)
            except Exception as error:  # of one caller; the others go on
                failure = failure or error
        if failure is not None:
            raise failure
