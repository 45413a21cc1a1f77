"""A broker for each module of this folder."""

from collections.abc import Iterator

import pytest

from txn.testing import TestBroker


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        yield made
