"""Response schemas of kio, with one of its own put right."""

from dataclasses import dataclass, field
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.describe_transactions.v0 import response as published
from kio.static.primitive import i64

DESCRIBE_TRANSACTIONS: Final = 65


@dataclass(frozen=True, slots=True, kw_only=True)
class _TransactionState(published.TransactionState):
    """The published schema, but that kio cannot read the start time -1 of a transaction that never
    began.
    """

    transaction_start_time: i64 = field(metadata={"kafka_type": "int64"})  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class _DescribeTransactionsResponse(published.DescribeTransactionsResponse):
    transaction_states: tuple[_TransactionState, ...]


def response_schema(api_key: int, version: int) -> Any:
    if api_key == DESCRIBE_TRANSACTIONS:
        return _DescribeTransactionsResponse
    return load_response_schema(api_key, version)
