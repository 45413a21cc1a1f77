"""Maps a function over many items in a few threads, without any file descriptor.

A `multiprocessing` pool needs a pipe, and an executor cannot be used once the interpreter ends.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(
    count: int,
    do: Callable[[T], R],
    items: Sequence[T],
    *,
    report: Callable[[int], None] | None = None,
    report_s: float | None = None,
) -> list[R]:
    """Do something with every item, on `count` threads at most; return the results in order.

    The first failure is raised once every thread has ended; items not begun are left then. `report`
    is called every `report_s` seconds with how many are done.
    """
    done: dict[int, R] = {}
    failures: list[BaseException] = []
    remaining = iter(range(len(items)))
    taking = threading.Lock()

    def work() -> None:
        while not failures:
            with taking:
                index = next(remaining, None)
            if index is None:
                return
            try:
                done[index] = do(items[index])
            except BaseException as error:
                failures.append(error)

    threads = [
        threading.Thread(target=work, name="txn-worker", daemon=True)
        for _ in range(min(count, len(items)))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(report_s)
        while thread.is_alive():
            if report is not None:
                report(len(done))
            thread.join(report_s)
    if failures:
        raise failures[0]
    return [done[index] for index in range(len(items))]
