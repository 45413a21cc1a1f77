"""The hosts of access control entries: addresses in any notation, and networks (KIP-1276).

Pure. Requests come from addresses in their short form, so entries are compared in that form.
"""

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ipaddress import IPv4Network, IPv6Network


def is_in_network(host: str, entry: str) -> bool:
    """Say whether an entry's host is a network (KIP-1276) that an address belongs to."""
    network = network_of(entry) if "/" in entry and len(entry) <= ADDRESS_MAX else None
    if network is None:
        return False
    from ipaddress import ip_address

    try:
        return ip_address(host) in network
    except ValueError:  # a request that did not come over a socket
        return False


MAPPED_BITS: Final = 96
"""Bits before the IPv4 address in an IPv6 address that maps it. Requests have IPv4 addresses."""


@lru_cache(maxsize=4096)
def network_of(text: str) -> "IPv4Network | IPv6Network | None":
    """The network that ADDRESS/BITS means; the address may be any in it. None: the text is none."""
    from ipaddress import IPv4Network, ip_network

    if not text.rpartition("/")[2].isdecimal():  # a mask is no part of the notation
        return None
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        return None
    mapped = getattr(network.network_address, "ipv4_mapped", None)
    if mapped is not None and network.prefixlen >= MAPPED_BITS:
        return IPv4Network((mapped, network.prefixlen - MAPPED_BITS))
    return network


ADDRESS_MAX: Final = 64
"""Characters of the longest IPv6 address, with its zone; an entry may have any text."""


def short_form(host: str) -> str:
    """An IPv6 address in its short form, which requests come from; another host as it is.

    Java writes 0:0:0:0:0:0:0:1, so entries of Apache Kafka have that.
    """
    return _short_address(host) if ":" in host and len(host) <= ADDRESS_MAX else host


@lru_cache(maxsize=4096)
def _short_address(host: str) -> str:
    from ipaddress import IPv6Address  # 2 ms of a start

    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return str(address.ipv4_mapped or address)
