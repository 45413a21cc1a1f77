"""The fault of a damaged producer snapshot is named, and it is never loaded."""

import struct

import pytest

from txn.partition.producer_state_entry import ProducerStateEntry
from txn.partition.snapshot import decode_snapshot, encode_snapshot
from txn.wire.checksums import crc32c


def stored_producer() -> ProducerStateEntry:
    state = ProducerStateEntry()
    state.append(3, 10, 19, 100, 109, 5)
    state.end_transaction(3, 8, 6)
    return state


def with_valid_crc(body: bytes) -> bytes:
    return struct.pack(">hI", 1, crc32c(body)) + body


SNAPSHOT = encode_snapshot({7: stored_producer()})
ENTRY = SNAPSHOT[10:]


def test_a_snapshot_brings_back_epochs_time_and_the_newest_batch() -> None:
    state = decode_snapshot(SNAPSHOT)[7]
    assert (state.producer_epoch, state.coordinator_epoch, state.last_timestamp_ms) == (3, 8, 6)
    assert list(state.batches) == [(10, 19, 100, 109)]
    assert state.next_sequence == 20


def test_the_checksum_is_castagnolis() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # the check value of its catalogue entry


def test_a_batch_without_sequences_comes_back_without() -> None:
    state = ProducerStateEntry()
    state.append(3, -1, -1, 100, 104, 5)
    restored = decode_snapshot(encode_snapshot({7: state}))[7]
    assert list(restored.batches) == [(-1, -1, 100, 104)]


def test_P8_no_producers_are_ten_bytes_and_come_back_as_none() -> None:
    assert len(encode_snapshot({})) == 10
    assert decode_snapshot(encode_snapshot({})) == {}


@pytest.mark.parametrize("position", range(2, len(SNAPSHOT)))
def test_P9_a_changed_byte_is_found(position: int) -> None:
    damaged = bytearray(SNAPSHOT)
    damaged[position] ^= 0x10
    with pytest.raises(ValueError, match="damaged"):
        decode_snapshot(bytes(damaged))


@pytest.mark.parametrize("length", [0, 1, 9])
def test_P9_a_snapshot_shorter_than_its_header_is_found(length: int) -> None:
    with pytest.raises(ValueError, match=f"cut off: {length} bytes"):
        decode_snapshot(SNAPSHOT[:length])


def test_P9_a_snapshot_cut_inside_an_entry_is_found() -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode_snapshot(SNAPSHOT[:-1])


def test_a_snapshot_of_another_version_is_refused() -> None:
    with pytest.raises(ValueError, match="has version 2"):
        decode_snapshot(b"\x00\x02" + SNAPSHOT[2:])


@pytest.mark.parametrize("count", [-1, 0, 2, 2**31 - 1])
def test_P9_a_count_that_does_not_fit_the_bytes_is_found(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} producers do not fill"):
        decode_snapshot(with_valid_crc(struct.pack(">i", count) + ENTRY))


def test_P9_a_producer_named_twice_is_found() -> None:
    with pytest.raises(ValueError, match="names producer id 7 twice"):
        decode_snapshot(with_valid_crc(struct.pack(">i", 2) + ENTRY + ENTRY))


def test_P9_an_offset_delta_below_offset_zero_is_found() -> None:
    entry = struct.pack(">qhiqiqiq", 7, 3, 19, 5, 9, 0, -1, -1)
    with pytest.raises(ValueError, match="offset delta 9 at last offset 5"):
        decode_snapshot(with_valid_crc(struct.pack(">i", 1) + entry))
