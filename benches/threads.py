"""Runs a load in threads that begin and end together."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

WAIT_S = 60.0


class Stopwatch:
    """When threads begin and end, and how long their commits took.

    Args:
        threads: Number of threads that wait for each other.
        seconds: Time from their common beginning to their end.
        on_start: Called as they begin.
    """

    def __init__(
        self, threads: int, seconds: float, on_start: Callable[[], None] = lambda: None
    ) -> None:
        self.ready = threading.Barrier(threads, action=self._start)
        self._length_s = seconds
        self._on_start = on_start
        self._began = 0.0
        self._ended = 0.0
        self.commits_us: list[float] = []

    def _start(self) -> None:
        self._on_start()
        self._began = time.perf_counter()

    def wait_for_all(self) -> None:
        """Wait until every thread is ready."""
        self.ready.wait(WAIT_S)

    @property
    def is_running(self) -> bool:
        """True before the end."""
        return time.perf_counter() < self._began + self._length_s

    @property
    def seconds(self) -> float:
        """Seconds from the beginning to the end of the last thread."""
        return self._ended - self._began

    @contextmanager
    def commit(self) -> Iterator[None]:
        """Count the block as a commit."""
        began = time.perf_counter()
        yield
        self._ended = time.perf_counter()
        self.commits_us.append((self._ended - began) * 1e6)


def in_threads(
    work: Callable[[int, Stopwatch], None],
    threads: int,
    seconds: float,
    on_start: Callable[[], None] = lambda: None,
) -> Stopwatch:
    """Run `work(number, watch)` in so many threads; raise SystemExit if one fails."""
    watch = Stopwatch(threads, seconds, on_start)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        try:
            work(number, watch)
        except BaseException as failure:
            failures.append(failure)
            watch.ready.abort()

    started = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    if failures:
        raise SystemExit(f"{len(failures)} producers failed; one of them: {failures[0]!r}")
    return watch
