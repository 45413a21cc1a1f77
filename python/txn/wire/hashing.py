"""Which partition of a coordinator's topic keeps a key.

Kafka puts a transactional id or a group id into a partition by the `hashCode` of a Java
String: a polynomial over UTF-16 code units, in 32 bits that wrap round.

Sources: java.lang.String.hashCode; `partitionFor` of Kafka's two coordinators, which take the
absolute value (0 for -2**31) and then the modulo. Clearing the sign bit, as Kafka's producers do
with a key's murmur2, would send every negative hash elsewhere than Apache Kafka looks for it.
"""

import struct
from functools import lru_cache

REMEMBERED = 4_096
REMEMBERED_NAME_MAX = 256
"""Names that are remembered, up to a length. Longer ones, which may have 32 KB, are of no client
but a hostile one; a few are remembered while their requests are under way."""

MASK_32 = 0xFFFFFFFF
SIGN_BIT = 0x80000000


def java_hash(text: str) -> int:
    """The `hashCode` of a Java String: a signed 32-bit number.

    Characters outside the basic plane count as the two code units that Java has for them. It
    takes microseconds, and is remembered.
    """
    return _short_hash(text) if len(text) <= REMEMBERED_NAME_MAX else _long_hash(text)


def _hash(text: str) -> int:
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", units):
        value = (31 * value + unit) & MASK_32
    return value - (1 << 32) if value & SIGN_BIT else value


_short_hash = lru_cache(maxsize=REMEMBERED)(_hash)
_long_hash = lru_cache(maxsize=16)(_hash)


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of `__transaction_state` or `__consumer_offsets` that keeps a key.

    Asked for with every request; the hash is remembered.
    """
    value = java_hash(key)
    return 0 if value == -SIGN_BIT else abs(value) % partition_count
