"""A request goes on when an operation was performed for it, or could not be."""

import asyncio
from typing import Any

from txn.broker.runtime import Requests
from txn.coordinator.operations import Performed, Request
from txn.coordinator.transaction.ending import Mark
from txn.errors import StorageError
from txn.testing import FakeHost


def refuse(_: Performed) -> Request[Any]:
    raise StorageError("the log of the shard cannot be opened")


def ends(operation: Mark) -> Request[str]:
    try:
        yield operation
    except StorageError:
        return "tried again later"
    return "marked"


def test_an_operation_that_cannot_be_begun_is_an_error_of_the_request_that_yields_it() -> None:
    """It passed the request by, which planned no retry: the end stayed unfinished."""
    requests = Requests(FakeHost(), refuse)
    answer = asyncio.run(requests.run("a", ends(Mark(None)), lambda _: "unloaded"))  # type: ignore[arg-type]
    assert answer == "tried again later"
