"""The comparison itself: it sees differences, and accepts only those that an entry names."""

from typing import Any

from differential.batches import BatchSpec, decode, transactional
from differential.known import Exchange, KnownDifference, accepted_by
from differential.names import NOW, Name, Names
from differential.plain import differences

ENTRY = KnownDifference("known", "because", ("EndTxn",), "error_code", "none", "producer_fenced")


def judge(api: str, txn: dict[str, Any], kafka: dict[str, Any]) -> tuple[list[str], list[str]]:
    """(paths nobody accepts, names of the entries used)"""
    exchange = Exchange(api, 5, {}, txn, kafka)
    left, used = accepted_by([ENTRY], exchange, list(differences(txn, kafka)))
    return [difference.path for difference in left], [entry.name for entry in used]


def test_equal_answers_do_not_differ_whatever_their_order_of_partitions() -> None:
    ours = {"partitions": [{"index": 0, "offset": 1}, {"index": 1, "offset": 2}]}
    theirs = {"partitions": [{"index": 1, "offset": 2}, {"index": 0, "offset": 1}]}
    assert list(differences(ours, theirs)) == []


def test_a_field_an_entry_and_a_list_that_differ_are_each_told() -> None:
    ours = {"code": 1, "partitions": [{"index": 0, "offset": 1}, {"index": 1, "offset": 2}]}
    theirs = {"code": 2, "partitions": [{"index": 0, "offset": 3}]}
    found = [str(difference) for difference in differences(ours, theirs)]
    assert found == [
        "code: txn 1, Kafka 2",
        "partitions[0].offset: txn 1, Kafka 3",
        "partitions[1]: txn {'index': 1, 'offset': 2}, Kafka '(not there)'",
    ]


def test_an_accepted_error_code_excuses_the_fields_beside_it() -> None:
    ours = {"error_code": "none", "producer_epoch": 2}
    theirs = {"error_code": "producer_fenced", "producer_epoch": -1}
    assert judge("EndTxn", ours, theirs) == ([], ["known"])


def test_another_api_value_or_field_is_not_accepted() -> None:
    ours = {"error_code": "none", "producer_epoch": 2}
    fenced = {"error_code": "producer_fenced", "producer_epoch": 2}
    assert judge("InitProducerId", ours, fenced) == (["error_code"], [])
    assert judge("EndTxn", fenced, ours) == (["error_code"], [])
    assert judge("EndTxn", ours, ours | {"producer_epoch": 3}) == (["producer_epoch"], [])


def test_a_name_stands_for_the_value_it_is_bound_to_and_no_other() -> None:
    names = Names()
    names.bind(Name("producer id", 1), 4711)
    assert names.name_of("producer_id", 4711) == Name("producer id", 1)
    assert names.name_of("producer_id", 4712) == 4712
    assert names.name_of("base_offset", 4711) == 4711
    assert names.name_of("last_timestamp", 1_700_000_000_000) != NOW


def test_a_batch_is_read_as_it_was_made_and_damage_shows() -> None:
    (sound,) = decode(transactional(7, 3, 5, values=(b"a", b"b")).encode(7))
    assert (sound["producer_id"], sound["producer_epoch"], sound["base_sequence"]) == (7, 3, 5)
    assert (sound["record_count"], sound["is_sound"]) == (2, True)
    (damaged,) = decode(BatchSpec(crc=0).encode(-1))
    assert not damaged["is_sound"]
