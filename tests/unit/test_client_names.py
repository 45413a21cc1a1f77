"""Names of the clients that a user meets in an editor: those that are for users, and no others."""

import confluent_kafka
import pytest

import txn
from txn.client import Transaction


def public(client: type) -> set[str]:
    return {name for name in dir(client) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("client", "names"),
    [
        (txn.Consumer, public(confluent_kafka.Consumer) | {"engine", "poll_arrow"}),
        (
            txn.Producer,
            {
                *("close", "flush", "make_transaction", "produce", "send", "transaction"),
                "write_arrow",
                *("complete_transaction", "kept_transaction"),  # KIP-939
            },
        ),
        (
            Transaction,
            {
                *("call_at_end", "open_ms", "produce", "result", "send", "send_offsets"),
                "write_arrow",
                *("leave_prepared", "prepare"),  # KIP-939
            },
        ),
    ],
)
def test_a_client_has_the_names_that_are_for_users_alone(client: type, names: set[str]) -> None:
    """`txn.Consumer` offered its book-keeping: `note_begun`, `reached`, `go_back` and others."""
    assert public(client) == names
