"""The same work for many transactions, in a few threads.

A client belongs to one thread, so each thread has a client of its own.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from txn.spark.kafka import TransactionalClient

T = TypeVar("T")
R = TypeVar("R")


IN_ONE_THREAD: Final = 8
"""Up to this many transactions are ended one after the other, at about a millisecond each."""


def in_threads(
    connect: Callable[[], TransactionalClient],
    action: Callable[[TransactionalClient, T], R],
    items: Sequence[T],
) -> list[R]:
    """Share the items out among as many clients as threads: a client belongs to one thread."""
    clients = [connect() for _ in range(IN_ONE_THREAD)]

    def work(number: int) -> list[R]:
        return [action(clients[number], item) for item in items[number::IN_ONE_THREAD]]

    try:
        with ThreadPoolExecutor(IN_ONE_THREAD) as pool:
            shares = list(pool.map(work, range(IN_ONE_THREAD)))
    finally:
        for client in clients:
            client.close()
    return [answer for share in shares for answer in share]
