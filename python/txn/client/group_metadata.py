"""A consumer's place in its group, as librdkafka writes it: `consumer_group_metadata` gives it.

    "CGMDv2:" | generation, int32 | group \0 | member id \0 | 1, or 0 and instance id \0

A producer of either engine sends it with the offsets of a transaction (KIP-447).
"""

import struct
from typing import Final

MARK: Final = b"CGMDv2:"


def write_place(group: str, generation: int, member: str, instance: str | None) -> bytes:
    """Return the bytes of a place."""
    head = struct.pack("=i", generation)
    tail = f"\0{instance}\0".encode() if instance else b"\1"
    return b"".join((MARK, head, f"{group}\0{member}\0".encode(), tail))


def read_place(metadata: object) -> tuple[str, int, str, str | None]:
    """Return (group, generation, member id, instance id) of a place.

    Raises:
        TypeError: `metadata` is not what `consumer_group_metadata` gives.
    """
    if not isinstance(metadata, bytes) or not metadata.startswith(MARK):
        raise TypeError(f"not the group metadata of a consumer: {metadata!r}")
    rest = metadata[len(MARK) :]
    (generation,) = struct.unpack_from("=i", rest)
    group, member, tail = rest[4:].split(b"\0", 2)
    is_null, instance = tail[0] != 0, tail[1:].split(b"\0", 1)[0]
    return (
        group.decode(),
        generation,
        member.decode(),
        None if is_null or not instance else instance.decode(),
    )
