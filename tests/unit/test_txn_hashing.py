import gc
import weakref

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


class Text(str):
    """A string that can be watched."""


def test_long_names_are_hashed_and_not_kept() -> None:
    """Two caches of 4,096 names kept 128 MB of group ids of 32 KB, refused ones too."""
    names = [f"{number}".zfill(1_000) for number in range(100)]
    texts = [Text(name) for name in names]
    known = [weakref.ref(text) for text in texts]
    hashes = list(map(java_hash, texts))
    places = {coordinator_partition(name, 50) for name in names}
    texts.clear()
    gc.collect()
    assert len(set(hashes)) > 90
    assert len(places) > 20
    assert sum(text() is not None for text in known) < 20
