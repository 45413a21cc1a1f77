"""A call that may never come back, made on a thread of its own so that a deadline holds.

librdkafka's `send_offsets_to_transaction` can wait for ever once the broker that coordinates the
group has restarted, with any timeout (its issues 5456 and 5511). The native engine's returns in
time, so it needs no thread: see `ends_in_time`.
"""

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from txn.client.deadline import Deadline

Call = TypeVar("Call", bound=Callable[..., Any])

_ENDS_IN_TIME: Final = "_txn_ends_in_time"


def ends_in_time(call: Call) -> Call:
    """Mark a method that keeps its timeout; `BoundedCall` makes it on the caller's thread."""
    setattr(call, _ENDS_IN_TIME, True)
    return call


class BoundedCall:
    """One call: run at most once, and awaited for a limited time.

    A caller that stops waiting, at a deadline or by a signal, asks `is_over` before it continues. A
    call that has not begun by then never will. A call that has begun may still have its effect.
    """

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._permit = deque([None])  # taken once: by the thread, or to forbid the call
        self._done = threading.Event()
        self._raised: BaseException | None = None

    def run(self, deadline: Deadline) -> bool:
        """Make the call and raise its exception; return whether it came back in time."""
        if _keeps_its_timeout(self._call):
            self._run()
        else:
            threading.Thread(target=self._run, name="txn-bounded-call", daemon=True).start()
            if not self._done.wait(deadline.remaining):
                return False
        if self._raised is not None:
            raise self._raised
        return True

    def is_over(self, deadline: Deadline) -> bool:
        """Wait until the call can no longer take effect; return whether that is certain."""
        try:
            self._permit.pop()
        except IndexError:
            return self._done.wait(deadline.remaining)
        self._done.set()
        return True

    def _run(self) -> None:
        try:
            self._permit.pop()
        except IndexError:
            return
        try:
            self._call()
        except BaseException as raised:
            self._raised = raised
        finally:
            self._done.set()


def _keeps_its_timeout(call: Callable[[], None]) -> bool:
    made = call.func if isinstance(call, partial) else call
    return getattr(made, _ENDS_IN_TIME, False) is True
