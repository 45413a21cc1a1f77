"""The pages of the console, in the order of the navigation. A new page adds one line here."""

from collections.abc import Sequence
from typing import Final

from txn.console.pages import (
    activity,
    cluster,
    dead_letters,
    groups,
    readers,
    rights,
    topics,
    transactions,
)
from txn.console.site import Page

PAGES: Final[Sequence[Page]] = (
    readers.PAGE,
    transactions.PAGE,
    topics.PAGE,
    groups.PAGE,
    dead_letters.PAGE,
    activity.PAGE,
    cluster.PAGE,
    rights.PAGE,
)
