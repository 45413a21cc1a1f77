"""InitProducerId 6 (KIP-939), served by both brokers: another system decides each end."""

from differential.script import ABORT, COMMIT, NOBODY, Talk


def another_system_decides(talk: Talk) -> None:
    for outcome in (COMMIT, ABORT):
        name = talk.pair.own(f"x{outcome}")
        producer = talk.init(name, enable2_pc=True)
        talk.describe(name)
        talk.send(producer, 0)
        talk.describe(name)
        talk.end(producer, outcome)
        talk.send(producer, 0)
        talk.look()
        talk.init(name, enable2_pc=True)
        talk.describe(name)
        talk.look()


def it_is_no_longer_another_systems(talk: Talk) -> None:
    name = talk.pair.own("x")
    producer = talk.init(name, enable2_pc=True)
    talk.send(producer, 0)
    successor = talk.init(name)
    talk.describe(name)
    talk.send(producer, 1)
    talk.end(producer, COMMIT)
    talk.send(successor, 0)
    talk.init(name, 5)
    talk.describe(name)
    talk.look()


def any_timeout_is_asked_for(talk: Talk) -> None:
    """There is none."""
    for timeout_ms in (0, -1, 1_000, 900_001, 2**31 - 1):
        name = talk.pair.own(f"x{timeout_ms}")
        talk.init(name, timeout_ms=timeout_ms, enable2_pc=True)
        talk.describe(name)
        talk.init(name, timeout_ms=timeout_ms)
        talk.describe(name)


def it_goes_on_from_its_epoch(talk: Talk) -> None:
    name = talk.pair.own("x")
    first = talk.init(name, enable2_pc=True)
    second = talk.init(name, shown=first.identity, enable2_pc=True)
    talk.init(name, shown=first.identity, enable2_pc=True)
    talk.send(second, 0)
    third = talk.init(name, shown=second.identity, enable2_pc=True)
    talk.describe(name)
    talk.send(third, 0)
    talk.end(third, COMMIT)
    talk.look()


def nobodys_transactions(talk: Talk) -> None:
    """InitProducerId without a transactional id."""
    talk.init(None, shown=NOBODY)
    talk.init(None, enable2_pc=True)
    talk.init(None, keep_prepared_txn=True)
    talk.init(None, enable2_pc=True, keep_prepared_txn=True)
    talk.init("", enable2_pc=True)


def a_prepared_transaction_is_kept(talk: Talk) -> None:
    name = talk.pair.own("x")
    producer = talk.init(name, enable2_pc=True)
    talk.send(producer, 0)
    talk.init(name, enable2_pc=True, keep_prepared_txn=True)


def a_prepared_transaction_is_kept_without_two_phase_commit(talk: Talk) -> None:
    talk.init(talk.pair.own("x"), keep_prepared_txn=True)
