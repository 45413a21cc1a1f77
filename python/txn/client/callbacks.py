"""The program's callbacks, kept apart from librdkafka's answers.

confluent-kafka raises the exception of a callback out of the call that serves it, in place of that
call's own answer. A commit serves callbacks too. An `error_cb` that raised there made a commit that
was done look refused, and a KafkaException of the program's was read as the cluster's word. So
no exception of a callback passes through librdkafka here: the first one waits until the answer is
known.

KeyboardInterrupt goes through, as it may be raised by a signal before any guard begins; each call
is prepared for it. `oauth_cb` needs no guard: it is served by a thread of librdkafka, which
reports its exception as a failure to acquire a token.

A fatal error of librdkafka's passes through in another way. confluent-kafka sets it as the
exception of the call, and may serve more callbacks before that call returns. An exception that one
of them handles by itself replaced the fatal error, and the call raised a SystemError without a
cause. So every callback begins by taking it, and ends by raising it again.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, ParamSpec

from txn._core import take_pending_exception

Given = ParamSpec("Given")

GUARDED: Final = ("error_cb", "on_delivery", "stats_cb", "throttle_cb")


def keeping_fatal_errors(settings: Mapping[str, object]) -> dict[str, object]:
    """Return settings whose callbacks leave a pending fatal error pending.

    The logger is wrapped by `Redaction.watch`, and does so too.
    """
    kept = dict(settings)
    for name in (*GUARDED, "on_commit"):
        callback = kept.get(name)
        if callable(callback):
            kept[name] = keeping_fatal_error(callback)
    return kept


def keeping_fatal_error(callback: Callable[Given, object]) -> Callable[Given, None]:
    """Return a callback that leaves a pending fatal error pending.

    An exception of the callback becomes its cause. KeyboardInterrupt takes its place; librdkafka
    refuses the next call for the same reason.
    """

    def call(*given: Given.args, **named: Given.kwargs) -> None:
        # Nothing may be looked up in an object before: to look in vain clears the exception.
        fatal_error = take_pending_exception()
        try:
            callback(*given, **named)
        except Exception as raised:
            if fatal_error is None:
                raise
            raise fatal_error from raised
        if fatal_error is not None:
            raise fatal_error

    return call


class Callbacks:
    """Guards callbacks, and keeps the first exception among them."""

    def __init__(self) -> None:
        self._kept: deque[tuple[str, BaseException]] = deque()

    def guard(self, settings: dict[str, object]) -> None:
        """Put a guarded callback in the place of each one in the settings."""
        for name in GUARDED:
            callback = settings.get(name)
            if callable(callback):
                settings[name] = self._guarded(name, callback)

    def raise_kept(self) -> None:
        """Raise the exception that was kept, if any was."""
        if kept := self._pop_kept():
            raise kept[1]

    def pop_kept(self) -> BaseException | None:
        """Return the exception that was kept, and keep it no longer."""
        kept = self._pop_kept()
        return None if kept is None else kept[1]

    def add_note_to(self, reason: BaseException) -> None:
        """Name the exception that was kept, if any was, in a note on another one."""
        if (kept := self._pop_kept()) and kept[1] is not reason:
            name, raised = kept
            reason.add_note(f"The producer's {name} raised {raised!r} meanwhile.")

    def _pop_kept(self) -> tuple[str, BaseException] | None:
        try:
            return self._kept.popleft()
        except IndexError:
            return None

    def _guarded(self, name: str, callback: Callable[..., object]) -> Callable[..., None]:
        def call(*given: Any) -> None:
            try:
                callback(*given)
            except KeyboardInterrupt:
                raise
            except BaseException as raised:
                if not self._kept:
                    self._kept.append((name, raised))

        return call
