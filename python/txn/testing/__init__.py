"""The test kit: a broker with faults on request, fixtures for pytest, and fakes for unit tests.

- `TestBroker`: a broker behind a proxy that loses, delays, holds and refuses; with a clock that
  moves, and snapshots. `txn.testing.plugin` has the fixtures.
- `SchemaRegistry`: a schema registry beside the broker.
- `crash_everywhere`: runs a program again and again, stopped at each step of its protocol, and
  checks its output.
- `MemoryLog`, `FakeHost`: the log of a partition without files, and the broker below a coordinator.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from txn.testing.broker import Clock, Snapshot, TestBroker
    from txn.testing.client import Record
    from txn.testing.crash import CrashReport, crash_everywhere
    from txn.testing.errors import WaitError
    from txn.testing.fake_host import Crash, FakeHost, FakeTimer
    from txn.testing.faults import Fault
    from txn.testing.memory_log import MemoryLog
    from txn.testing.registry import SchemaRegistry
    from txn.testing.stops import STOPS

__all__ = [
    "STOPS",
    "Clock",
    "Crash",
    "CrashReport",
    "FakeHost",
    "FakeTimer",
    "Fault",
    "MemoryLog",
    "Record",
    "SchemaRegistry",
    "Snapshot",
    "TestBroker",
    "WaitError",
    "crash_everywhere",
]

_LAZY = {
    "STOPS": "stops",
    "Clock": "broker",
    "Crash": "fake_host",
    "CrashReport": "crash",
    "FakeHost": "fake_host",
    "FakeTimer": "fake_host",
    "Fault": "faults",
    "MemoryLog": "memory_log",
    "Record": "client",
    "SchemaRegistry": "registry",
    "Snapshot": "broker",
    "TestBroker": "broker",
    "WaitError": "errors",
    "crash_everywhere": "crash",
}
"""Loaded when first used: pytest loads the plugin in every session."""


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"txn.testing.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'txn.testing' has no attribute {name!r}")
