"""InitProducerId: the id and epoch of each request, and the refused ones.

KIP-98, KIP-360, KIP-939.
"""

from differential.script import ABORT, COMMIT, NOBODY, Talk, versions

STRANGE_ID = 4_000_000_000_000


def every_version_gives_a_new_producer_its_identity(talk: Talk) -> None:
    for version in versions("InitProducerId"):
        name = talk.pair.own(f"x{version}")
        talk.init(name, version)
        talk.init(name, version)
        talk.init(None, version)
        talk.describe(name)


def arguments_that_cannot_be(talk: Talk) -> None:
    name = talk.pair.own("x")
    for version in versions("InitProducerId"):
        talk.init("", version)
        for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
            talk.init(f"{name}-{version}", version, timeout_ms=timeout_ms)
            talk.init(None, version, timeout_ms=timeout_ms)
    talk.init(talk.pair.own("x" * 300))
    for shown in ((-1, 0), (5, -1), (-1, 3), (STRANGE_ID, 0), (STRANGE_ID, 5)):
        own = talk.pair.own(f"x{shown[0]}/{shown[1]}")
        talk.init(None, 5, shown=shown)
        talk.init(own, 5, shown=shown)
        talk.init(own, 5, shown=shown)
    talk.init(talk.pair.own("x"), 5, shown=(-2, -2))


def a_producer_goes_on_from_its_epoch(talk: Talk) -> None:
    """KIP-360: a request with the current epoch gets the next, again too if the answer was lost."""
    for version in versions("InitProducerId")[3:]:
        name = talk.pair.own(f"x{version}")
        producer = talk.init(name, version)
        second = talk.init(name, version, shown=producer.identity)
        talk.init(name, version, shown=producer.identity)
        talk.describe(name)
        third = talk.init(name, version, shown=second.identity)
        talk.init(name, version, shown=producer.identity)
        talk.init(name, version, shown=(STRANGE_ID, third.producer_epoch))
        talk.init(name, version, shown=third.at(third.producer_epoch + 1).identity)
        talk.init(name, version)
        talk.init(name, version, shown=third.identity)
        talk.describe(name)


def a_producer_goes_on_after_its_transaction(talk: Talk) -> None:
    for end_version in (3, 5):
        for outcome in (COMMIT, ABORT):
            name = talk.pair.own(f"x{end_version}{outcome}")
            producer = talk.init(name)
            before = producer.identity
            talk.send(producer, 0)
            talk.end(producer, outcome, end_version)
            after = producer.identity
            talk.init(name, shown=after)
            talk.init(name, shown=before)
            talk.describe(name)
    talk.look()


def a_producer_goes_on_without_the_answer_to_its_end(talk: Talk) -> None:
    for end_version in (3, 5):
        for outcome in (COMMIT, ABORT):
            name = talk.pair.own(f"x{end_version}{outcome}")
            producer = talk.init(name)
            before = producer.identity
            talk.send(producer, 0)
            talk.end(producer, outcome, end_version)
            talk.init(name, shown=before)
            talk.init(name, shown=before)
            talk.describe(name)


def a_producer_shows_the_epoch_before_one_that_was_used(talk: Talk) -> None:
    name = talk.pair.own("x")
    producer = talk.init(name)
    before = producer.identity
    talk.end(producer, ABORT)
    talk.send(producer, 0)
    talk.end(producer, ABORT, 4)
    talk.look()
    talk.init(name, shown=before)


def a_producer_goes_on_out_of_an_open_transaction(talk: Talk) -> None:
    name = talk.pair.own("x")
    producer = talk.init(name)
    talk.send(producer, 0)
    second = talk.init(name, shown=producer.identity)
    talk.describe(name)
    talk.look()
    talk.send(producer, 1)
    talk.send(second, 0)
    talk.end(second, COMMIT)
    talk.look()


def a_fenced_producer_cannot_go_on_over_an_open_transaction(talk: Talk) -> None:
    name = talk.pair.own("x")
    old = talk.init(name)
    new = talk.init(name)
    talk.send(new, 0)
    talk.init(name, shown=old.identity)
    talk.describe(name)
    talk.look()


def a_transaction_of_another_is_aborted(talk: Talk) -> None:
    for version in versions("InitProducerId"):
        name = talk.pair.own(f"x{version}")
        old = talk.init(name, version)
        talk.add_partitions(old, (0, 1))
        talk.send(old, 0, version=11)
        new = talk.init(name, version)
        talk.describe(name)
        talk.send(old, 1, version=11)
        talk.end(old, COMMIT, 3)
        talk.send(new, 0)
        talk.end(new, COMMIT)
    talk.look()


def the_timeout_of_the_last_initialization_counts(talk: Talk) -> None:
    name = talk.pair.own("x")
    talk.init(name, timeout_ms=10_000)
    talk.describe(name)
    talk.init(name, timeout_ms=20_000)
    talk.describe(name)


def two_phase_commit_is_asked_for(talk: Talk) -> None:
    """KIP-939, version 6: not announced by Kafka 4.2, which answers it or closes."""
    name = talk.pair.own("x")
    talk.init(name, 6)
    talk.init(name, 6, enable2_pc=True)
    talk.init(name, 6, keep_prepared_txn=True)
    talk.init(None, 6, shown=NOBODY)
