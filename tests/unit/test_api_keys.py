"""Python's API keys and the versions it announces for the reactors are those of Rust's tables."""

from txn import _core
from txn.broker.apis.table import SERVED_BY_REACTORS
from txn.server.metrics.scrape import api_name
from txn.wire.api_keys import ApiKey


def test_every_api_key_is_a_row_of_the_table_in_rust() -> None:
    assert [(int(each), api_name(each)) for each in ApiKey] == [
        (key, name) for key, name, _ in _core.apis()
    ]


def test_the_versions_announced_for_the_reactors_are_those_they_answer() -> None:
    answered = {key: versions for key, _, versions in _core.apis() if versions is not None}
    assert answered == SERVED_BY_REACTORS
