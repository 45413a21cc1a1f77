"""Quotas of clients, set and described by requests as bytes."""

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from support.wire_client import RawConnection
from txn import _core
from txn.wire.api_keys import ApiKey
from txn.wire.messages import is_flexible

PRODUCE = 0

Parts = Mapping[str, str | None]
"""An entity: type → name, None for the default."""


def alteration(entity: Parts, changes: Mapping[str, float | None]) -> dict[str, Any]:
    """One entry of AlterClientQuotas; None takes a quota away."""
    return {
        "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
        "ops": [
            {"key": key, "value": value or 0.0, "remove": value is None}
            for key, value in changes.items()
        ],
    }


def alter(
    servers: str, *entries: dict[str, Any], version: int = 1, validate_only: bool = False
) -> list[tuple[dict[str, str | None], int, str | None]]:
    """Alter quotas; return entity, code and message of each result."""
    with RawConnection(servers) as connection:
        answer = connection.ask(
            ApiKey.ALTER_CLIENT_QUOTAS, version, entries=entries, validate_only=validate_only
        )
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            int(entry.error_code),
            entry.error_message,
        )
        for entry in answer.entries
    ]


def set_quota(servers: str, entity: Parts, **changes: float | None) -> None:
    """Alter quotas of one entity, which is done."""
    ((_, code, message),) = alter(servers, alteration(entity, changes))
    assert code == 0, message


def describe(
    servers: str,
    components: Sequence[tuple[str, int, str | None]] = (),
    *,
    strict: bool = False,
    version: int = 1,
) -> Any:
    """The answer to DescribeClientQuotas."""
    asked = [{"entity_type": t, "match_type": m, "match": name} for t, m, name in components]
    with RawConnection(servers) as connection:
        return connection.ask(
            ApiKey.DESCRIBE_CLIENT_QUOTAS, version, components=asked, strict=strict
        )


def described(servers: str, *components: tuple[str, int, str | None]) -> list[Any]:
    """Entities and their quotas, in the order of their text."""
    answer = describe(servers, components)
    assert answer.error_code == 0, answer.error_message
    found = [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {one.key: one.value for one in entry.values},
        )
        for entry in answer.entries
    ]
    return sorted(found, key=str)


class IdentifiedConnection(RawConnection):
    """A bare connection whose requests have a client id."""

    def __init__(self, servers: str, client_id: str = "shop") -> None:
        super().__init__(servers)
        self.client_id = client_id

    def send_body(self, key: int, version: int, body: bytes) -> None:
        client_id = self.client_id.encode()
        flexible = b"\0" if is_flexible(key, version) else b""
        header = struct.pack(">hhih", key, version, 7, len(client_id)) + client_id + flexible
        self.send_frame(header + body)

    def send_produce(self, topic: str, size: int, *, acks: int = 1) -> None:
        """Send a Produce of one record of so many bytes, to partition 0."""
        batch = _core.encode_batch([(None, bytes(size))], 1_700_000_000_000, -1, -1, -1, False)
        self.send(
            PRODUCE,
            9,
            transactional_id=None,
            acks=acks,
            timeout=10_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
        )

    def produce(self, topic: str, size: int) -> int:
        """Write one record of so many bytes; return the throttle time in milliseconds."""
        self.send_produce(topic, size)
        return self.produced()

    def produced(self) -> int:
        """The throttle time of the next answer to a Produce."""
        answer = self.receive(PRODUCE, 9)
        assert answer.responses[0].partition_responses[0].error_code == 0
        return milliseconds(answer)

    def fetch(self, topic: str, offset: int = 0, max_bytes: int = 1 << 20) -> tuple[int, int]:
        """Read from partition 0; return the bytes of records and the throttle time."""
        answer = self.ask_for_records(topic, offset, max_bytes)
        records = [one.records for found in answer.responses for one in found.partitions]
        return sum(len(one or b"") for one in records), milliseconds(answer)


def milliseconds(answer: Any) -> int:
    """The throttle time of an answer."""
    seconds: float = answer.throttle_time.total_seconds()
    return round(seconds * 1000)
