"""Python's error codes are those of Rust's table, which kio's schemas agree with.

kio has the codes up to Kafka 4.2's last. `interop/test_error_codes.py` compares all with Kafka's.
"""

from kio.schema.errors import ErrorCode as SchemaErrorCode

from txn import _core
from txn.wire.error_codes import ErrorCode


def test_every_error_code_is_a_row_of_the_table_in_rust() -> None:
    table = {name: code for code, name, _, _ in _core.error_codes()}
    assert {each.name: each.value for each in ErrorCode} == table


def test_the_table_agrees_with_the_schemas_of_the_protocol_library() -> None:
    table = [(code, name, retriable) for code, name, retriable, _ in _core.error_codes()]
    theirs = [(each.value, each.name.upper(), each.retriable) for each in SchemaErrorCode]
    assert table[: len(theirs)] == sorted(theirs)
    assert [code for code, _, _ in table[len(theirs) :]] == [134, 135, 136]


def test_every_row_has_an_advice() -> None:
    assert all(advice for *_, advice in _core.error_codes())
