"""Two costs of PySpark's workers that are larger than the work of a tiny micro-batch.

**Collections.** The daemon makes a full garbage collection after each request that a worker has
answered. It looks at every object of PySpark, pyarrow and txn, which takes 30 to 50 ms of CPU. The
sink's own part takes a tenth of that. `gc.freeze` exempts the objects that are there. They live as
long as the process in any case.

**Delayed acknowledgements.** The JVM sends a task's function and then its rows, in two segments,
and leaves Nagle's algorithm on. So the kernel keeps the second back until the first is
acknowledged. The worker's end puts that off for 40 ms, since the worker has nothing to say.
TCP_QUICKACK acknowledges it now. Sockets of the Unix domain
(`spark.python.unix.domain.socket.enabled`) have neither.

Source: pyspark/daemon.py, PythonRunner, Spark 4.2 (behaviour); tcp(7).
"""

import gc
import os
import socket
import stat
from contextlib import suppress
from itertools import count
from typing import Final

REUSED: Final = "SPARK_REUSE_WORKER"
"""Is set in processes that serve one request after the other."""

_requests = count(1)


def begin_request() -> None:
    """Spare this process its collections, from its second request on.

    Its modules are loaded then, and the garbage of loading them was collected. Does nothing outside
    of Spark's Python workers.
    """
    if REUSED in os.environ and next(_requests) == 2:
        gc.freeze()


def begin_task() -> None:
    """Do the same for a task, and let the JVM send its rows now."""
    begin_request()
    if REUSED in os.environ:
        acknowledge_now()


def acknowledge_now() -> None:
    """Acknowledge the received segments of this process's connections, where Linux can."""
    option = getattr(socket, "TCP_QUICKACK", None)
    if option is None:
        return
    with suppress(OSError):  # no /proc
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # closed meanwhile, or not TCP
                if stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                    with socket.socket(fileno=os.dup(int(name))) as connection:
                        connection.setsockopt(socket.IPPROTO_TCP, option, 1)
