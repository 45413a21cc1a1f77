"""A broker's surroundings for tests: logs in memory, a clock that is set, faults and crashes.

`MemoryLog` is the log of a partition, without files. `FakeHost` stands for the broker below the
coordinators of transactions and groups: it has topics of such logs, timers, settings and producer
ids. A test moves its clock, breaks its disks, and starts it again after a crash or a power failure.
"""

from txn.testing.fake_host import Crash, FakeHost, FakeTimer
from txn.testing.memory_log import MemoryLog

__all__ = ["Crash", "FakeHost", "FakeTimer", "MemoryLog"]
