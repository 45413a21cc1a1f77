"""A forked child shares its parent's broker, and must neither stop, harm nor hold it.

The story: a child that left `with txn.Broker(...)` marked the parent's live directory as cleanly
stopped, or removed it, and deregistered the parent's sockets.
"""

import multiprocessing
import os
import socket
import subprocess
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

import txn
from api.embedded.forked import PROGRAM_S, WAIT_S, in_child, produce_committed
from harnesses.peers.kafka import free_port
from support.clients import commit_values, read_all, transactional_producer
from txn import _core
from txn.storage import native_log

LEAVE_IN_ORDER = """\
import os, sys, txn

with txn.Broker({path}) as broker:
    if os.fork() == 0:
        sys.exit(0)  # leaves the block, runs what atexit holds, frees every object
    pid, status = os.wait()
    left = sorted(os.listdir(broker.path))
    assert status == 0, status
    assert "meta.properties" in left, left
    assert ".kafka_cleanshutdown" not in left, left
    with txn.Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id="a") as producer:
        with producer.transaction() as t:
            t.produce("orders", b"1")
print("done", os.path.exists(broker.path))
"""


COMMIT_ONE = """\
import sys, txn

def commit(servers):
    with txn.Producer(bootstrap_servers=servers, transactional_id="a") as producer:
        with producer.transaction() as t:
            t.produce("orders", b"1")
if __name__ == "__main__":
    commit(sys.argv[1])
"""

FORK_AT_THE_FIRST_REQUESTS = """\
import os, subprocess, sys, time, txn
from txn import forks

children = []
with txn.Broker() as broker:
    first = subprocess.Popen([sys.executable, "commit_one.py", broker.bootstrap_servers])
    for _ in range(3):
        while first.poll() is None and not forks._modules_loading():
            time.sleep(0.0005)
        child = os.fork()
        if child == 0:
            with txn.Broker() as own:
                from commit_one import commit  # librdkafka of a parent would be none of a child's
                commit(own.bootstrap_servers)
            os._exit(0)
        children.append(child)
    first.wait()
    print([os.waitpid(child, 0)[1] for child in children])
"""

FORK_IN_A_MODULE_THAT_RUNS_FOR_EVER = """\
import os, threading, time, txn.forks

txn.forks.WAIT_S = 3.0
times_s = []
def fork_thrice():
    for _ in range(3):
        began_s = time.monotonic()
        child = os.fork()
        if child == 0:
            os._exit(0)
        times_s.append(time.monotonic() - began_s)
        os.waitpid(child, 0)
with txn.Broker():
    other = threading.Thread(target=fork_thrice)
    other.start()
    other.join()
print([time_s > 2.5 for time_s in times_s])
"""

FORK_DURING_A_START = """\
import os, signal, sys, threading, time, txn

with txn.Broker(sys.argv[1]):
    pass
brokers, children = [], []
alive, comes_alive = os.pipe()
port = int(sys.argv[2])
start = threading.Thread(target=lambda: brokers.append(txn.Broker(sys.argv[1], port=port)))
start.start()
while start.is_alive():
    child = os.fork()
    if child == 0:
        os.write(comes_alive, b".")  # it has closed its copies of its parent's descriptors by now
        time.sleep(60)
        os._exit(0)
    children.append(child)
    time.sleep(0.003)
for _ in children:
    os.read(alive, 1)
[broker] = brokers
broker.close()
with txn.Broker(sys.argv[1], port=port):
    print("opened again")
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


@pytest.mark.parametrize("is_named", [True, False])
def test_a_child_that_leaves_the_block_leaves_the_parents_broker_at_work(
    is_named: bool, tmp_path: Path
) -> None:
    program = LEAVE_IN_ORDER.format(path=repr(str(tmp_path / "data")) if is_named else "")
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S
    )
    assert done.stderr == ""
    assert done.stdout == f"done {is_named}\n"
    if is_named:
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_process_of_multiprocessing_uses_the_parents_broker_by_its_address() -> None:
    with txn.Broker() as broker:
        process = multiprocessing.get_context("fork").Process(
            target=produce_committed, args=(broker.bootstrap_servers, b"1")
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
        process.join(WAIT_S)
        assert process.exitcode == 0
        assert read_all(broker.bootstrap_servers, "orders") == [b"1"]


def test_a_child_is_told_that_the_broker_is_its_parents() -> None:
    parent = os.getpid()
    with txn.Broker() as broker:

        def work() -> None:
            assert broker.path.exists()
            for use in (broker.__enter__, lambda: broker.failure):
                with pytest.raises(txn.ForkedError, match=f"runs in process {parent}") as told:
                    use()
                assert told.value.pid == parent
                assert told.value.action is txn.Action.REOPEN
            broker.close()
            del use

        assert in_child(work) == 0
        assert broker.failure is None


def test_a_child_has_brokers_of_its_own() -> None:
    with txn.Broker():

        def work() -> None:
            with txn.Broker() as own:
                produce_committed(own.bootstrap_servers, b"1")

        assert in_child(work) == 0


def test_a_child_that_lives_on_keeps_neither_lock_nor_port_nor_connections(tmp_path: Path) -> None:
    """The lock of an open file is held by every process that has the descriptor."""
    stay, let_go = os.pipe()
    is_running, has_run = os.pipe()
    with txn.Broker(tmp_path / "data") as broker:
        host, port = broker.bootstrap_servers.split(":")
        connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
        connection.sendall(b"\0\0")  # so that it was accepted before the fork, or is after
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            os.close(let_go)
            os.write(has_run, b"x")
            os.read(stay, 1)
            os._exit(0)
        os.read(is_running, 1)  # a child that has not run yet has let go of nothing
    for end in (stay, is_running, has_run):
        os.close(end)
    try:
        assert connection.recv(1) == b""
        with txn.Broker(tmp_path / "data", port=int(port)):
            pass
    finally:
        connection.close()
        os.close(let_go)
        os.waitpid(child, 0)


def test_a_killed_parents_directory_is_free_while_a_child_lives(tmp_path: Path) -> None:
    program = f"""\
import os, sys, txn
broker = txn.Broker({str(tmp_path / "data")!r})
if os.fork() == 0:
    print("forked", flush=True)
    sys.stdin.read()
    os._exit(0)
os.read(os.eventfd(0), 8)
"""
    parent = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    try:
        assert parent.stdout.readline() == b"forked\n"
        parent.kill()
        parent.wait(WAIT_S)
        with txn.Broker(tmp_path / "data"):
            pass
    finally:
        parent.stdin.close()
        parent.stdout.close()


def test_a_broker_cannot_be_pickled_and_the_error_says_what_to_send_instead() -> None:
    with txn.Broker() as broker, pytest.raises(TypeError, match="bootstrap_servers"):
        multiprocessing.get_context("spawn").Process(target=print, args=(broker,)).start()


def test_the_files_of_a_parent_that_a_child_closes_are_none_of_the_childs_own() -> None:
    """The story: a child's broker lost its listener. The child had closed its parent's files by
    number. The ring of open files closed them again, under numbers that others had by then.
    """
    with txn.Broker() as broker:
        for topic in ("a", "b", "c", "d"):
            commit_values(transactional_producer(broker.bootstrap_servers, "writer"), topic, [b"1"])

        def work() -> None:
            with txn.Broker() as own:
                producer = transactional_producer(own.bootstrap_servers, "writer")
                for number in range(4):
                    _core.close_idle_files()
                    commit_values(producer, "orders", [b"%d" % number])
                assert read_all(own.bootstrap_servers, "orders") == [b"0", b"1", b"2", b"3"]

        assert in_child(work) == 0
        assert read_all(broker.bootstrap_servers, "d") == [b"1"]


def test_a_child_waits_for_no_thread_that_its_parent_has() -> None:
    def work() -> None:
        with txn.Broker() as own:
            produce_committed(own.bootstrap_servers, b"1")
            admin = AdminClient({"bootstrap.servers": own.bootstrap_servers})
            for deleted in admin.delete_topics(["orders"]).values():
                deleted.result(WAIT_S)

    with txn.Broker(), ExitStack() as held:
        for lock in native_log._REMOVALS:
            held.enter_context(lock)
        assert in_child(work) == 0


@pytest.mark.parametrize(
    ("program", "told"),
    [(FORK_AT_THE_FIRST_REQUESTS, "[0, 0, 0]\n"), (FORK_DURING_A_START, "opened again\n")],
    ids=["at the first requests", "during a start"],
)
def test_a_fork_waits_for_threads_in_the_middle_of_something(
    program: str, told: str, tmp_path: Path
) -> None:
    """The story: children waited for ever for modules that a thread of the parent was loading, and
    kept the port and the lock of a broker that was starting. A module that made a logger was loaded
    by nobody then, as the fork held the lock of `logging`; nor did kio's readers come to be made.
    """
    (tmp_path / "commit_one.py").write_text(COMMIT_ONE)
    done = subprocess.run(
        # A port that the system gives out may be another's by the time it is asked for again.
        [sys.executable, "-c", program, str(tmp_path / "data"), str(free_port())],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PROGRAM_S,
    )
    assert (done.stdout, done.returncode) == (told, 0), done.stderr


def test_a_fork_waits_once_for_a_module_that_runs_the_program(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(FORK_IN_A_MODULE_THAT_RUNS_FOR_EVER)
    done = subprocess.run(
        [sys.executable, "-c", "import program"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
    )
    assert done.stdout == "[True, False, False]\n", done.stderr
