"""The rows that a transaction has written and that are not decided yet."""

import weakref
from dataclasses import dataclass, field

from txn.client.transaction import BlockResult, Transaction


@dataclass(eq=False, slots=True)
class Changes:
    """Rows of an open transaction, by partition; None deletes a row.

    `result` is None until the block has ended. A signal at the end of a block may hide it, so a
    block that is gone without a result counts as one in doubt.
    """

    block: "weakref.ref[Transaction]"
    rows: dict[int, dict[bytes, bytes | None]] = field(default_factory=dict)
    result: BlockResult | None = None

    def end(self, result: BlockResult) -> None:
        """Note how the block ended."""
        self.result = result

    @property
    def is_open(self) -> bool:
        """True while the block may still write."""
        block = self.block()
        return self.result is None and block is not None and block.result is None
