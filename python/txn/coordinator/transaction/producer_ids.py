"""Producer ids, handed out one by one from durable blocks.

A block is recorded as used before its first id is given away, so that no id is ever given twice. A
restart throws away the rest of the block.

Source: KIP-730.
"""

from collections.abc import Callable, Iterator


class ProducerIds:
    """Gives producer ids that nobody had."""

    __slots__ = ("_allocate", "_block")

    def __init__(self, allocate: Callable[[], range]) -> None:
        self._allocate = allocate
        self._block: Iterator[int] = iter(())

    def take(self) -> int:
        """The next producer id. Raises the exception of the allocation of a new block."""
        taken = next(self._block, None)
        if taken is None:
            self._block = iter(self._allocate())
            taken = next(self._block)
        return taken
