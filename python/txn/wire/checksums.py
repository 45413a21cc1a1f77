"""CRC-32C, of batches and of producer snapshots. Pure: bytes go in, a number comes out."""

from txn._core import crc32c

__all__ = ["crc32c"]
