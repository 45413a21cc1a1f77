"""The metadata image is the fold of its records, and the records are Kafka's bytes."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txn.metadata.image import Image, creation_records, name_fault
from txn.metadata.records import (
    BROKER_RESOURCE,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RemoveTopicRecord,
    TopicRecord,
    decode,
    encode,
)

TOPIC_ID = uuid.UUID(int=7)
DIRECTORY_ID = uuid.UUID(int=9)

records: st.SearchStrategy[MetadataRecord] = st.one_of(
    st.builds(TopicRecord, st.text(), st.uuids()),
    st.builds(PartitionRecord, st.integers(0, 2**31 - 1), st.uuids(), st.just(1), st.uuids()),
    st.builds(
        ConfigRecord, st.text(), st.text(), st.none() | st.text(), st.sampled_from([2, 4, 16, 32])
    ),
    st.builds(RemoveTopicRecord, st.uuids()),
    st.builds(FeatureLevelRecord, st.text(), st.integers(0, 2**15 - 1)),
    st.builds(ProducerIdsRecord, st.just(1), st.integers(0, 2**63 - 1)),
)


@given(records)
def test_a_record_comes_back_from_its_bytes(record: MetadataRecord) -> None:
    assert decode(encode(record)) == record


@given(st.binary())
def test_damaged_bytes_are_a_value_error_or_a_record(data: bytes) -> None:
    try:
        decode(data)
    except ValueError:
        return


def test_a_topic_record_has_the_bytes_of_kafkas_schema() -> None:
    expected = "01020004" + b"foo".hex() + TOPIC_ID.bytes.hex() + "00"
    assert encode(TopicRecord("foo", TOPIC_ID)).hex() == expected


def test_a_producer_ids_record_has_the_bytes_of_kafkas_schema() -> None:
    expected = "010f0000000001000000000000000000000000000003e800"
    assert encode(ProducerIdsRecord(1, 1000)).hex() == expected


def _image(*applied: MetadataRecord) -> Image:
    image = Image()
    for record in applied:
        image.apply(record)
    return image


def _orders() -> list[MetadataRecord]:
    return creation_records(
        "orders", TOPIC_ID, 3, {"retention.ms": "1"}, node_id=1, directory_id=DIRECTORY_ID
    )


def test_a_topic_is_there_with_partitions_and_settings() -> None:
    topic = _image(*_orders()).topics["orders"]
    assert (topic.partition_count, topic.settings) == (3, {"retention.ms": "1"})


def test_a_removed_topic_leaves_nothing_and_its_name_is_free() -> None:
    image = _image(*_orders(), RemoveTopicRecord(TOPIC_ID), ConfigRecord("orders", "a", "b"))
    assert (image.topics, image.names) == ({}, {})


def test_a_setting_of_a_broker_is_kept_apart_from_that_of_a_topic_of_its_name() -> None:
    image = _image(
        *creation_records("1", TOPIC_ID, 1, {}, node_id=1, directory_id=DIRECTORY_ID),
        ConfigRecord("1", "log.retention.ms", "5", BROKER_RESOURCE),
        ConfigRecord("1", "interval.ms", "6", 16),
    )
    assert image.topics["1"].settings == {}
    assert image.broker_settings == {"1": {"log.retention.ms": "5"}}


def test_a_setting_taken_away_is_gone() -> None:
    image = _image(*_orders(), ConfigRecord("orders", "retention.ms", None))
    assert image.topics["orders"].settings == {}


def test_producer_ids_never_go_back() -> None:
    image = _image(ProducerIdsRecord(1, 2000), ProducerIdsRecord(1, 1000))
    assert image.next_producer_id == 2000


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "__cluster_metadata", "or_ders"]
)
def test_a_bad_topic_name_is_refused(name: str) -> None:
    assert name_fault(name, ["or.ders"]) is not None


@pytest.mark.parametrize("name", ["orders", "a.b-c_D9", "x" * 249])
def test_a_good_topic_name_passes(name: str) -> None:
    assert name_fault(name, ["or.ders"]) is None
