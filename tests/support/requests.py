"""Requests as the broker decodes them, from their fields."""

import io
from typing import Any

from kio.serial import entity_writer

from support.entities import entity_builder
from support.served import decode
from txn.wire.kio import load_request_schema


def request_of(api_key: int, version: int, **fields: Any) -> Any:
    """A request as the broker decodes its bytes."""
    body = io.BytesIO()
    schema = load_request_schema(api_key, version)
    entity_writer(schema)(body, entity_builder(schema)(fields))
    return decode(api_key, version, body.getvalue())
