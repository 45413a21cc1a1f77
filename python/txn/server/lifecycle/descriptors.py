"""File descriptors: the number this process may have, and their uses.

A socket, a segment file and a pipe need one descriptor each. So neither clients nor partitions may
use all of the limit: connections and segment files have a share each. The rest is left to
everything else, such as checkpoints, snapshots, the threads of a recovery and the program around an
embedded broker.
"""

from typing import Final, NamedTuple

from txn import _core
from txn.errors import ConfigError
from txn.logs import log

OTHERS: Final = 160
"""Left to everything else: by measurement a broker takes some 40, those that close its logs or
recover them 3 for each of their threads."""

FILES_OF_EMBEDDED: Final = 512
"""The most segment files of brokers inside a program, whose own descriptors then have numbers
that its `select()` may still take (1,023 at most)."""

FILES_MIN: Final = 16

LIMIT_MIN: Final = 128
"""With fewer, files are refused at work, as by a disk that is broken. By measurement a broker takes
40, and 3 for each of 16 threads; beside them stand 16 connections and `FILES_MIN`."""


class Shares(NamedTuple):
    """Limits on connections and on segment files open at a time."""

    connections: int
    files: int


def share(limit: int) -> Shares:
    """Divide `limit` descriptors; connections get half of them.

    `max.connections` may rise while the broker runs, so it takes nothing away from them.
    """
    left = max(limit - OTHERS, limit // 4, 2 * FILES_MIN)
    connections = left // 2
    return Shares(connections, left - connections)


def claim(max_connections: int, *, is_requested: bool) -> Shares:
    """Raise this process's soft limit to its hard one, and divide it.

    Args:
        max_connections: `max.connections`.
        is_requested: Somebody asked for so many, and gets a warning if they cannot be.

    Raises:
        ConfigError: the limit is too small for a broker.
    """
    try:
        limit = _core.raise_descriptor_limit()
    except OSError as error:  # a sandbox forbids it
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        log.warning("descriptors.limit_not_raised", limit=limit, reason=str(error))
    if limit < LIMIT_MIN:
        raise ConfigError(
            f"this process may open {limit} files and sockets, and a broker needs {LIMIT_MIN} at "
            "least. Raise the limit: ulimit -n, or LimitNOFILE= of a systemd unit"
        )
    shares = share(limit)
    if is_requested and shares.connections < max_connections:
        log.warning(
            "descriptors.too_few",
            limit=limit,
            max_connections=max_connections,
            connections=shares.connections,
        )
    return shares
