"""Ids as Kafka's files write them: URL-safe base64 without padding."""

import base64
import uuid


def encode_id(value: uuid.UUID) -> str:
    """Write an id, 22 characters."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def decode_id(text: str) -> uuid.UUID:
    """Read an id. Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
