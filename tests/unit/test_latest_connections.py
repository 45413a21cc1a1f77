"""A request over a connection that its producer has left is known as late."""

from txn.coordinator.transaction.connections import ConnectionUse, LatestConnections
from txn.identifiers import ProducerIdAndEpoch

PRODUCER = ProducerIdAndEpoch(1_000, 0)
SUCCESSOR = ProducerIdAndEpoch(1_000, 1)
TRANSACTION, OFFSETS = ConnectionUse.TRANSACTION, ConnectionUse.OFFSETS


def speak(
    connections: LatestConnections,
    connection: int,
    producer: ProducerIdAndEpoch = PRODUCER,
    use: ConnectionUse = TRANSACTION,
) -> str:
    """Speak over a connection that is open; tell how it is taken."""
    if not connections.may_be_late("pay", use, producer, connection):
        return "same"
    is_doubtful = connections.is_doubtful("pay", use, connection)
    connections.note("pay", use, producer, connection)
    return "doubtful" if is_doubtful else "other"


def test_one_request_over_an_earlier_connection_is_doubtful_and_then_it_is_a_pool() -> None:
    connections = LatestConnections()
    assert [speak(connections, number) for number in (1, 1, 2, 2, 1, 1, 3, 2, 1)] == [
        "same", "same", "other", "same", "doubtful", "same", "other", "other", "other",
    ]  # fmt: skip


def test_a_successor_may_speak_over_any_connection() -> None:
    connections = LatestConnections()
    speak(connections, 5)
    assert speak(connections, 3, SUCCESSOR) == "same"
    assert speak(connections, 2, SUCCESSOR) == "doubtful"


def test_a_pool_stays_one_under_the_next_epoch() -> None:
    connections = LatestConnections()
    assert [speak(connections, number) for number in (2, 1)] == ["same", "doubtful"]
    assert [speak(connections, number, SUCCESSOR) for number in (2, 1)] == ["same", "other"]


def test_an_identity_that_was_replaced_notes_nothing() -> None:
    connections = LatestConnections()
    speak(connections, 5, SUCCESSOR)
    connections.note("pay", TRANSACTION, PRODUCER, 3)
    assert speak(connections, 5, SUCCESSOR) == "same"


def test_coordinators_of_groups_and_transactions_are_spoken_to_over_their_own_connections() -> None:
    connections = LatestConnections()
    speak(connections, 5)
    assert speak(connections, 3, use=OFFSETS) == "other"
    assert speak(connections, 5) == "same"


def test_offsets_may_be_late_over_any_connection_and_are_doubtful_over_each_new_one() -> None:
    connections = LatestConnections()
    assert [speak(connections, number, use=OFFSETS) for number in (2, 2, 3, 3, 1, 3)] == [
        "other", "other", "doubtful", "other", "doubtful", "other",
    ]  # fmt: skip


def test_offsets_are_doubtful_if_those_that_were_announced_before_have_not_come() -> None:
    connections = LatestConnections()
    for announced, taken in ((1, "other"), (1, "other"), (2, "doubtful"), (1, "other")):
        for _ in range(announced):
            connections.announce_offsets("pay")
        assert speak(connections, 5, use=OFFSETS) == taken


def test_an_id_that_expired_begins_anew() -> None:
    connections = LatestConnections()
    for use in ConnectionUse:
        speak(connections, 5, use=use)
    connections.announce_offsets("pay")
    connections.forget("pay")
    connections.announce_offsets("pay")
    assert [speak(connections, 1, use=use) for use in ConnectionUse] == ["same", "other"]
