"""Committed offsets around transactions, coordinators, DeleteRecords."""

from differential.batches import BatchSpec, transactional
from differential.script import ABORT, COMMIT, ScriptProducer, Talk, versions


def every_version_of_offset_commit_and_fetch(talk: Talk) -> None:
    for version in versions("OffsetCommit"):
        talk.plain_offsets({0: version, 1: version + 1}, version)
        for fetched in versions("OffsetFetch"):
            talk.fetch_offsets(fetched, stable=False)
    for fetched in versions("OffsetFetch"):
        talk.fetch_offsets(fetched, group=talk.pair.own("unknown"))
        talk.fetch_offsets(fetched, group="")
        talk.fetch_offsets(fetched, partitions=(0, 9))
        talk.fetch_offsets(fetched, partitions=())


def a_transaction_over_plain_offsets(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    talk.plain_offsets({0: 1})
    talk.commit_offsets(producer, {0: 10, 1: 11})
    for version in versions("OffsetFetch"):
        talk.fetch_offsets(version, stable=True)
        talk.fetch_offsets(version, stable=False)
    talk.plain_offsets({0: 2})
    talk.end(producer, COMMIT)
    talk.fetch_offsets()
    talk.commit_offsets(producer, {1: 12})
    talk.plain_offsets({1: 5})
    talk.end(producer, ABORT)
    talk.fetch_offsets()


def two_transactions_for_one_group(talk: Talk) -> None:
    first, second = talk.init(talk.pair.own("x")), talk.init(talk.pair.own("y"))
    talk.commit_offsets(first, {0: 1})
    talk.commit_offsets(second, {0: 2})
    talk.fetch_offsets()
    talk.end(second, COMMIT)
    talk.fetch_offsets()
    talk.fetch_offsets(stable=False)
    talk.end(first, COMMIT)
    talk.fetch_offsets()


def offsets_after_the_end_of_the_transaction(talk: Talk) -> None:
    for version in versions("TxnOffsetCommit"):
        producer = talk.init(talk.pair.own(f"x{version}"))
        before = producer.at(producer.producer_epoch)
        talk.add_offsets(producer)
        talk.commit_offsets(producer, {0: version}, version)
        talk.end(producer, COMMIT)
        talk.commit_offsets(before, {0: 99}, version)
        talk.fetch_offsets()


def offsets_under_an_id_of_another_and_its_earlier_epoch(talk: Talk) -> None:
    other = talk.init(talk.pair.own("y"))
    before = other.at(other.producer_epoch)
    talk.commit_offsets(other, {0: 1})
    talk.end(other, COMMIT)
    mine = talk.init(talk.pair.own("x"))
    talk.commit_offsets(ScriptProducer(mine.transactional_id, *before.identity), {0: 2})
    talk.fetch_offsets()


def coordinators(talk: Talk) -> None:
    for version in versions("FindCoordinator"):
        for kind in (0, 1, 2, 9, -1):
            talk.find_coordinator([talk.pair.own("x")], kind, version)
            talk.find_coordinator([""], kind, version)
        if version >= 4:
            talk.find_coordinator(["a", "b", "a"], 1, version)


def delete_records(talk: Talk) -> None:
    talk.produce({0: BatchSpec(values=(b"a",) * 4), 1: BatchSpec()})
    for version in versions("DeleteRecords"):
        for offset in (0, 2, 1, 5, -1, -2, 2**62):
            talk.delete_records({0: offset, 1: 0, 9: 0}, version)
            talk.list_offsets({0: -2, 1: -2})
    talk.look((4, 0))


def delete_records_into_a_batch_of_an_open_transaction(talk: Talk) -> None:
    producer = talk.init(talk.pair.own("x"))
    batch = transactional(*producer.identity, 0, values=(b"a", b"b", b"c"))
    talk.produce({0: batch}, producer.transactional_id)
    talk.delete_records({0: 1})
    for version in versions("Fetch"):
        talk.fetch({0: 1}, version)
    talk.end(producer, COMMIT)
    talk.look((1, 0))


def delete_records_with_an_open_transaction(talk: Talk) -> None:
    producer, other = talk.init(talk.pair.own("x")), talk.init(talk.pair.own("y"))
    talk.send(producer, 0)
    talk.send(other, 0)
    talk.delete_records({0: 1})
    talk.describe_producers()
    talk.look((1, 0))
    talk.delete_records({0: -1})
    talk.describe_producers()
    talk.look((2, 0))
    talk.send(producer, 1)
    talk.end(producer, COMMIT)
    talk.look((2, 0))
    talk.end(other, ABORT)
    talk.look((2, 0))
    talk.send(producer, 0)
    talk.look((2, 0))
