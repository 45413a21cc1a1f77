"""The pages whose pictures docs/console.md shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images" / "console"
WIDTH: Final = 1_200
BYTES_MAX: Final = 60_000

PICTURES: Final[Mapping[str, tuple[str, str]]] = {
    "explain": ("/readers/orders/0", "The transaction that holds back the readers of a partition"),
    "transactions": ("/transactions?window=1m", "A lane for each transactional id"),
    "transaction": ("/transactions/one?id=pay-3", "One transaction over all of its logs"),
    "records": ("/topics/orders/0?from=earliest", "The log beside the view of a reader"),
    "group": ("/groups/one?id=billing", "A group with its lag in committed records"),
}
"""Name of the file → the address, and the words for those who do not see it."""
