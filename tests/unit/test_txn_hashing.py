import pytest

from txn.wire.hashing import coordinator_partition, java_hash


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("é", 233),
        ("payments-7", 1612905879),
        ("😀", 1772899),
    ],
)
def test_a_hash_is_what_java_computes(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_a_negative_hash_loses_its_sign_bit() -> None:
    assert coordinator_partition("polygenelubricants", 50) == 0


def test_a_key_has_its_partition() -> None:
    assert coordinator_partition("hello", 50) == 22
