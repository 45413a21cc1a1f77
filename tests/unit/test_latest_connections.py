"""A request over a connection that its producer has left is known as late."""

from txn.coordinator.transaction.connections import ConnectionUse, LatestConnections
from txn.coordinator.transaction.states import ProducerIdAndEpoch

PRODUCER = ProducerIdAndEpoch(1_000, 0)
SUCCESSOR = ProducerIdAndEpoch(1_000, 1)


def speak(
    connections: LatestConnections,
    connection: int,
    producer: ProducerIdAndEpoch = PRODUCER,
    role: ConnectionUse = ConnectionUse.TRANSACTION,
) -> bool:
    return connections.is_superseded("pay", role, producer, connection)


def test_an_earlier_connection_is_late_and_stays_so() -> None:
    connections = LatestConnections()
    assert [speak(connections, number) for number in (1, 1, 2, 1, 2, 3, 2)] == [
        False, False, False, True, False, False, True,
    ]  # fmt: skip


def test_a_successor_may_speak_over_any_connection() -> None:
    connections = LatestConnections()
    speak(connections, 5)
    assert not speak(connections, 3, SUCCESSOR)
    assert speak(connections, 2, SUCCESSOR)


def test_coordinators_of_groups_and_transactions_are_spoken_to_over_their_own_connections() -> None:
    connections = LatestConnections()
    speak(connections, 5)
    assert not speak(connections, 3, role=ConnectionUse.OFFSETS)
    assert speak(connections, 2, role=ConnectionUse.OFFSETS)


def test_an_id_that_expired_begins_anew() -> None:
    connections = LatestConnections()
    for role in ConnectionUse:
        speak(connections, 5, role=role)
    connections.forget("pay")
    assert not any(speak(connections, 1, role=role) for role in ConnectionUse)
