"""Frames and bodies that no client sends. Both close the connection, or answer alike."""

import struct
from typing import Final

from differential.batches import BatchSpec
from differential.pair import API_KEYS
from differential.script import COMMIT, Talk, versions
from support.tagged import UNKNOWN_TAGS

FOUR_BILLION: Final = b"\xff\xff\xff\xff\x0f"
"""A compact array's length."""


def announced_versions(talk: Talk) -> None:
    for version in versions("ApiVersions"):
        talk.pair.ask(
            "ApiVersions", version, client_software_name="txn", client_software_version="1"
        )
    for name, number in (("", ""), ("a b", "1"), ("-a", "1"), ("a", "1" * 200)):
        talk.pair.ask("ApiVersions", 3, client_software_name=name, client_software_version=number)


def frames(talk: Talk) -> None:
    good = struct.pack(">hhih", 18, 0, 5, -1)
    for frame, data in (
        ("a negative length", struct.pack(">i", -1)),
        ("no length", struct.pack(">i", 0)),
        ("too long", struct.pack(">i", 2**31 - 1) + b"x" * 64),
        ("http", b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n"),
        ("garbage", _framed(b"\xff" * 8)),
        ("a header that ends early", _framed(good[:7])),
        ("an unknown API", _framed(struct.pack(">hhih", 999, 0, 5, -1))),
        ("a negative API", _framed(struct.pack(">hhih", -1, 0, 5, -1))),
        ("a client id longer than the frame", _framed(struct.pack(">hhih", 18, 0, 5, 500))),
        ("a negative client id", _framed(struct.pack(">hhihii", 2, 1, 5, -7, -1, 0))),
        ("a negative array", _framed(struct.pack(">hhihii", 2, 1, 5, -1, -1, -2))),
    ):
        talk.pair.ask_raw(frame, data)


def versions_that_do_not_exist(talk: Talk) -> None:
    for api, key in API_KEYS.items():
        if api == "ApiVersions":
            continue
        for version in (-1, 99):
            talk.pair.ask_raw(
                f"{api} of another version", _framed(struct.pack(">hhih", key, version, 5, -1))
            )
    for version in (0, 1, 2):
        talk.pair.ask_raw(
            "Produce of another version", _framed(struct.pack(">hhih", 0, version, 5, -1))
        )


def bodies_that_end_early_or_lie(talk: Talk) -> None:
    for api in API_KEYS:
        if api in ("CreateTopics", "DeleteTopics", "ApiVersions", "WriteTxnMarkers"):
            continue
        for version in (versions(api)[0], versions(api)[-1]):
            for body in (b"", b"\0", b"\xff" * 40, b"\x7f" * 40, b"\0\1\0", FOUR_BILLION):
                talk.pair.ask_bytes(api, version, body)


def tagged_fields_that_nobody_knows(talk: Talk) -> None:
    """Passed over in every structure (KIP-482); where one is longer than the request, malformed."""
    talk.pair.tag(UNKNOWN_TAGS)
    for produce, newer in ((11, 0), (13, 1)):
        producer = talk.init(talk.pair.own(f"x{produce}"), 4 + newer)
        if not newer:
            talk.add_partitions(producer, (0, 1))
            talk.add_offsets(producer, 3)
        talk.send(producer, 0, 0, produce)
        talk.commit_offsets(producer, {0: 3}, 4 + newer)
        talk.describe(producer.transactional_id)
        talk.list_transactions([producer.producer_id])
        talk.end(producer, COMMIT, 4 + newer)
        talk.find_coordinator([producer.transactional_id], 1, 6)
        talk.plain_offsets({1: 2}, 8 + newer)
        talk.look()
    talk.delete_records({0: 1})
    for tags in (b"\x01\x63\xff\x7f", b"\xff\xff\xff\xff\x07", b"\x01\x63\xff\xff\xff\xff\x07"):
        talk.pair.tag(tags)
        talk.describe(talk.pair.own("x13"))
        talk.fetch({0: 0})
        talk.produce({0: BatchSpec()})


def bytes_behind_a_request(talk: Talk) -> None:
    """Ignored: librdkafka sends some."""
    for behind in (b"", b"x", b"\0" * 30):
        talk.pair.ask_bytes("AddOffsetsToTxn", 0, _offsets_body() + behind)


def _offsets_body() -> bytes:
    return struct.pack(">h6sqhh1s", 6, b"nobody", 4_000_000_000_000, 0, 1, b"g")


def _framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload
