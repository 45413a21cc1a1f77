"""A forked child gives back the sockets and files that it shares with the broker of its parent.

Only descriptors of the child are closed, so the parent's broker serves on.
"""

import os
from collections.abc import Collection
from contextlib import suppress

from txn.security.listeners import EVERY_ADDRESS


def close_shared(addresses: Collection[tuple[str, int]], directory: str) -> None:
    """Close this process's descriptors of a directory, files in it and sockets at addresses.

    Their numbers stay taken, by the null device: an owner that closes one later would else close
    another file or socket, to which the number was given meanwhile.
    """
    with suppress(OSError), open(os.devnull, "rb") as null:
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # the listing's own descriptor is gone
                target = os.readlink(f"/proc/self/fd/{name}")
                is_file = f"{target}/".startswith(f"{directory}/")
                if is_file or (target.startswith("socket:") and _is_at(int(name), addresses)):
                    os.dup2(null.fileno(), int(name), inheritable=False)


def _is_at(descriptor: int, addresses: Collection[tuple[str, int]]) -> bool:
    """Return True if a socket's own end has one of the addresses."""
    import socket

    one = socket.socket(fileno=descriptor)
    try:
        own = one.getsockname()
    finally:
        one.detach()
    if one.family not in (socket.AF_INET, socket.AF_INET6):
        return False
    return any(
        own[1] == port and (host in EVERY_ADDRESS or own[0] == host) for host, port in addresses
    )
