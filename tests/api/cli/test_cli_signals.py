"""`txn consume`, `produce` and `top` on terminals and pipes, and stopped by signals."""

import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message

import txn.cli.consume
import txn.client
from support.brokers import BrokerProcess
from support.client_script import TIMED_OUT, ClientScript, ScriptedProducer, fatal
from support.clients import create_topic, plain_producer, read_all, send
from support.command_line import run_txn
from txn.client import stored_records
from txn.client.producer import Producer
from txn.client.transaction import Transaction

WAIT_S = 60


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with txn.Broker() as broker:
        yield broker.bootstrap_servers


@contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "txn", *map(str, words)]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        try:
            yield process
        finally:
            process.kill()


def output_of(process: subprocess.Popen[bytes]) -> IO[bytes]:
    assert process.stdout is not None
    return process.stdout


def redirected(how: str, *words: object) -> subprocess.CompletedProcess[str]:
    """The end of a command without a terminal, its streams redirected in a shell's words."""
    command = [sys.executable, "-m", "txn", *map(str, words)]
    return subprocess.run(
        ["sh", "-c", f'"$@" {how}', "sh", *command],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        start_new_session=True,
    )


@pytest.mark.parametrize(
    "words", [("consume", "orders"), ("cluster", "describe"), ("topics", "list")]
)
def test_a_closed_output_is_told_before_anything_is_done(words: tuple[str, ...]) -> None:
    ended = redirected(">&-", *words)
    told = "txn: standard output is closed: give it a file, a pipe or /dev/null\n"
    assert (ended.returncode, ended.stderr) == (1, told)


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("produce", "closed"), 0, ""),
        (
            ("topics", "delete", "closed"),
            2,
            "txn: nobody can confirm it: standard input is no terminal. Give --yes\n",
        ),
        (
            ("users", "add", "carl"),
            2,
            "txn: nobody can type the password: standard input is no terminal. Give "
            "--password-file or --password-env\n",
        ),
    ],
)
def test_a_closed_input_is_empty(
    servers: str, words: tuple[str, ...], code: int, told: str
) -> None:
    """It was a traceback: Python has no stream for it."""
    run_txn("topics", "create", "closed", "--if-not-exists", "--bootstrap", servers)
    ended = redirected("<&-", *words, "--bootstrap", servers)
    assert "Traceback" not in ended.stderr
    assert ended.returncode == code
    assert ended.stderr.endswith(told)


def test_errors_are_lost_with_a_closed_standard_error(servers: str) -> None:
    """They stood in the output: `print` takes that where there is no other stream."""
    ended = redirected("2>&-", "topics", "describe", "nowhere", "--bootstrap", servers)
    assert (ended.returncode, ended.stdout) == (2, "")


@pytest.mark.parametrize(
    "words",
    [
        ("explain", "unwritten", "--json"),
        ("explain", "unwritten"),
        ("transactions", "list"),
        ("topics", "list"),
        ("top", "--json"),
    ],
)
def test_an_output_that_cannot_be_written_is_told_as_such(
    servers: str, words: tuple[str, ...]
) -> None:
    """`explain` took it for a source that does not answer."""
    run_txn("topics", "create", "unwritten", "--if-not-exists", "--bootstrap", servers)
    ended = redirected(">/dev/full", *words, "--bootstrap", servers)
    assert ended.stderr == "txn: cannot write the output: No space left on device\n"
    assert ended.returncode == 1


def test_a_dump_takes_no_full_disk_for_a_file_that_it_cannot_read(tmp_path: Path) -> None:
    with txn.Broker(tmp_path) as broker:
        create_topic(broker.bootstrap_servers, "dumped")
        send(plain_producer(broker.bootstrap_servers), "dumped", [b"1"] * 1_000)
    ended = redirected(">/dev/full", "log", "dump", tmp_path)
    assert ended.stderr == "txn: cannot write the output: No space left on device\n"
    assert ended.returncode == 1


@pytest.mark.parametrize("as_json", [(), ("--json",)])
def test_top_ends_when_its_reader_has_gone(servers: str, as_json: tuple[str, ...]) -> None:
    """With --json it went on for ever: the first lost line was swallowed, with the loss."""
    with running("top", *as_json, "--every", "100ms", "--bootstrap", servers) as process:
        assert output_of(process).readline()
        output_of(process).close()
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_follow_prints_records_as_they_come_and_ends_by_a_signal(
    servers: str, number: signal.Signals
) -> None:
    topic = f"followed-{number}"
    create_topic(servers, topic)
    producer = plain_producer(servers)
    send(producer, topic, [b"1"])
    words = ("consume", topic, "--follow", "--from", "earliest", "--bootstrap", servers)
    with running(*words) as process:
        assert output_of(process).readline() == b"1\n"
        send(producer, topic, [b"2"])
        assert output_of(process).readline() == b"2\n"
        process.send_signal(number)
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    assert errors == (
        b"txn: stopped after 2 records. With --group NAME a later run goes on behind them\n"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("callback", ["on_assign", "on_revoke"])
def test_signal_within_a_callback_of_the_consumer_ends_consume(
    servers: str, monkeypatch: pytest.MonkeyPatch, callback: str, number: signal.Signals
) -> None:
    """confluent-kafka loses what a callback raises: there was a traceback of a SystemError."""
    topic = f"shared-{callback}-{number}"
    create_topic(servers, topic)
    send(plain_producer(servers), topic, [b"1"])

    class Signalled(confluent_kafka.Consumer):
        def subscribe(self, *topics: Any, **callbacks: Any) -> None:
            def signalled(*given: object) -> None:
                os.kill(os.getpid(), number)
                callbacks[callback](*given)

            super().subscribe(*topics, **{**callbacks, callback: signalled})

    monkeypatch.setattr(confluent_kafka, "Consumer", Signalled)
    code, _, errors = run_txn("consume", topic, "--group", topic, "--bootstrap", servers)
    assert (code, errors.count("\n")) == (0, 1)
    assert errors.startswith("txn: stopped after ")


def left_of(group: str, count: int, servers: str, why: str) -> str:
    records = "record" if count == 1 else "records"
    return (
        f"The offsets of the last {count} {records} are not {why}. A later run prints again the "
        f"records that are lag there: txn groups describe {group} --bootstrap {servers}\n"
    )


def test_a_group_whose_broker_is_gone_is_not_told_to_go_on_behind_the_records(
    tmp_path: Path,
) -> None:
    """librdkafka's close waited for the broker: no signal was heard for minutes.

    Then the command said that the group goes on behind the records, and ended with 0.
    """
    broker = BrokerProcess(tmp_path / "data")
    where = ("--bootstrap", broker.bootstrap_servers)
    create_topic(broker.bootstrap_servers, "o")
    send(plain_producer(broker.bootstrap_servers), "o", [b"1", b"2", b"3"])
    words = ("consume", "o", "--follow", "--from", "earliest", "--group", "g", *where)
    with running(*words) as process:
        assert [output_of(process).readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
        broker.kill()
        assert process.stderr is not None
        assert process.stderr.readline() == b"txn: waiting for the cluster: no broker answers\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    left = left_of("g", 3, broker.bootstrap_servers, "known to be committed: no broker answers")
    assert errors.decode() == f"txn: stopped after 3 records. {left}"
    broker.restart()
    described = json.loads(run_txn("groups", "describe", "g", "--json", *where)[1])
    assert [each for each in described["partitions"] if each["committed_offset"] is not None] == []
    broker.stop()


def test_a_signal_leaves_a_group_behind_the_printed_records(servers: str) -> None:
    create_topic(servers, "behind")
    send(plain_producer(servers), "behind", [b"1", b"2"])
    where = ("--group", "behind", "--bootstrap", servers)
    with running("consume", "behind", "--follow", "--from", "earliest", *where) as process:
        assert [output_of(process).readline() for _ in range(2)] == [b"1\n", b"2\n"]
        send(plain_producer(servers), "behind", [b"3"])
        assert output_of(process).readline() == b"3\n"
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=WAIT_S)
    told = b"txn: stopped after 3 records. Group 'behind' goes on behind them next time\n"
    assert (process.returncode, errors) == (0, told)
    assert run_txn("consume", "behind", *where) == (0, "", "")


def test_a_signal_cuts_the_last_commit_short(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(confluent_kafka.Consumer):
        def commit(self, *_: Any, **__: Any) -> Any:
            os.kill(os.getpid(), signal.SIGTERM)
            threading.Event().wait()

    create_topic(servers, "silent")
    send(plain_producer(servers), "silent", [b"1", b"2"])
    monkeypatch.setattr(stored_records, "LEAVE_S", 600.0)
    monkeypatch.setattr(confluent_kafka, "Consumer", Silent)
    words = ("consume", "silent", "--group", "s", "-n", 2, "--bootstrap", servers)
    left = left_of("s", 2, servers, "known to be committed: there was no answer")
    assert run_txn(*words) == (1, "1\n2\n", f"txn: stopped after 2 records. {left}")


def test_a_refused_commit_is_told_with_the_number_of_its_records(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refused(confluent_kafka.Consumer):
        def commit(self, *_: Any, **__: Any) -> Any:
            raise KafkaException(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))

    create_topic(servers, "refused")
    send(plain_producer(servers), "refused", [b"1", b"2"])
    monkeypatch.setattr(confluent_kafka, "Consumer", Refused)
    words = ("consume", "refused", "--group", "r", "-n", 2, "--bootstrap", servers)
    code, output, errors = run_txn(*words)
    why = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED).str()
    assert (code, output) == (1, "1\n2\n")
    assert errors == "txn: " + left_of("r", 2, servers, f"committed: {why}")


def test_records_that_were_being_printed_at_a_signal_come_again(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(printed: bytes) -> None:
        if printed:  # a batch is empty while the broker has not answered
            os.kill(os.getpid(), signal.SIGINT)

    create_topic(servers, "half")
    send(plain_producer(servers), "half", [b"1"])
    words = ("consume", "half", "--group", "h", "--bootstrap", servers)
    with monkeypatch.context() as patched:
        patched.setattr(txn.cli.consume, "print_bytes", interrupted)
        code, _, errors = run_txn(*words)
    left = left_of("h", 1, servers, "known to be committed: there was no answer")
    assert (code, errors) == (1, f"txn: stopped after 1 record. {left}")
    assert run_txn(*words) == (0, "1\n", "")


def test_a_partition_that_goes_while_its_records_are_printed_is_no_error(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that joined meanwhile ended `txn consume --group` with a traceback of _STATE."""
    create_topic(servers, "taken")
    send(plain_producer(servers), "taken", [b"1", b"2"])

    class Rebalanced(confluent_kafka.Consumer):
        def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
            found = super().consume(num_messages, timeout)
            self.unassign()
            return found

    monkeypatch.setattr(confluent_kafka, "Consumer", Rebalanced)
    words = ("consume", "taken", "--group", "takers", "--max-records", 1, "--bootstrap", servers)
    assert run_txn(*words) == (0, "1\n", "")


@pytest.mark.parametrize("follow", [(), ("--follow", "--from", "earliest")])
def test_a_reader_that_has_read_enough_ends_the_command(
    servers: str, follow: tuple[str, ...]
) -> None:
    topic = f"headed-{len(follow)}"
    create_topic(servers, topic)
    send(plain_producer(servers), topic, [b"x" * 1000] * 500)
    with running("consume", topic, *follow, "--bootstrap", servers) as process:
        assert output_of(process).readline() == b"x" * 1000 + b"\n"
        output_of(process).close()
        assert process.wait(WAIT_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_follow_notices_that_its_reader_has_gone_without_a_record(servers: str) -> None:
    create_topic(servers, "quiet")
    send(plain_producer(servers), "quiet", [b"1"])
    words = ("consume", "quiet", "--follow", "--from", "earliest", "--bootstrap", servers)
    with running(*words) as process:
        assert output_of(process).readline() == b"1\n"
        output_of(process).close()
        assert process.wait(WAIT_S) == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_aborts_the_transaction_of_produce(servers: str, number: signal.Signals) -> None:
    topic, name = f"cut-{number}", f"loader-{number}"
    create_topic(servers, topic)
    words = ("produce", topic, "--transactional-id", name, "--bootstrap", servers)
    with running(*words) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n" * 10_000)
        process.stdin.flush()
        while read_all(servers, topic, isolation="read_uncommitted") == []:
            assert process.poll() is None
        process.send_signal(number)
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert errors.decode() == (
        f"txn: stopped: the transaction of {name!r} is aborted, and no reader sees a record of it. "
        "Run the command again\n"
    )
    described = run_txn("transactions", "describe", name, "--bootstrap", servers)
    assert "CompleteAbort" in described[1]
    assert read_all(servers, topic) == []


LOOK = (
    "Run the command again only if it was aborted: "
    "txn transactions describe p --bootstrap {servers}\n"
)
DOUBT = "the commit of 'p' had no answer, so 0 records may be stored. " + LOOK


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([KeyboardInterrupt(), KeyboardInterrupt()], "txn: stopped: " + DOUBT),
        ([TIMED_OUT], "txn: " + DOUBT),
        (
            [KeyboardInterrupt(), fatal(KafkaError.PRODUCER_FENCED)],
            "txn: stopped: the producer of 'p' lost its place or could not abort, so the cluster "
            "ends its transaction. " + LOOK,
        ),
    ],
)
def test_a_commit_without_an_answer_is_not_told_as_an_abort(
    servers: str, monkeypatch: pytest.MonkeyPatch, answers: list[Any], told: str
) -> None:
    """It was, with the advice to run the command again: its records were stored twice."""
    create_topic(servers, f"doubted-{len(told)}")

    class Impatient(ScriptedProducer):
        def transaction(self, consumer: Any = None, timeout: float = 0) -> Transaction:
            return super().transaction(consumer, timeout)

    def opened(*_: object, **__: object) -> Producer:
        return Impatient(ClientScript(commit_transaction=answers))

    monkeypatch.setattr(txn.client, "Producer", opened)
    words = ("produce", f"doubted-{len(told)}", "--transactional-id", "p", "--bootstrap", servers)
    code, output, errors = run_txn(*words, stdin=b"1\n")
    assert (code, output) == (1, "")
    assert errors == told.format(servers=servers)


def test_a_signal_leaves_the_records_before_it_where_there_is_no_transaction(servers: str) -> None:
    create_topic(servers, "lines")
    with running("produce", "lines", "--bootstrap", servers) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n2\n")
        process.stdin.flush()
        while len(read_all(servers, "lines")) < 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=WAIT_S)
    assert (process.returncode, errors) == (1, b"txn: stopped: 2 records before that are stored\n")


def test_a_second_produce_fences_the_first(servers: str) -> None:
    create_topic(servers, "fenced")
    words = ("produce", "fenced", "--transactional-id", "one", "--bootstrap", servers)
    with running(*words) as process:
        assert process.stdin is not None
        process.stdin.write(b"1\n" * 10_000)
        process.stdin.flush()
        while read_all(servers, "fenced", isolation="read_uncommitted") == []:
            assert process.poll() is None
        assert run_txn(*words, stdin=b"2\n")[0] == 0
        _, errors = process.communicate(timeout=WAIT_S)
    assert process.returncode == 1
    assert errors.startswith(b"txn: producer 'one' ")
    assert errors.count(b"\n") == 1
    assert read_all(servers, "fenced") == [b"2"]


def test_nothing_is_left_open_by_a_terminal_that_is_no_more(servers: str) -> None:
    """Python ends with 120 where the flush of the last text fails."""
    create_topic(servers, "full")
    send(plain_producer(servers), "full", [b"1"])
    words = [sys.executable, "-m", "txn", "consume", "full", "--bootstrap", servers]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S, env=dict(os.environ)
        )
    assert done.returncode == 1
    assert done.stderr == b"txn: cannot write the output: No space left on device\n"


@pytest.mark.parametrize(
    ("options", "how"),
    [((), ""), (("--transactional-id", "t"), ", in one transaction of 't'"), (("--json",), "")],
)
def test_records_are_told_as_stored_where_the_output_cannot_be_written(
    servers: str, options: tuple[str, ...], how: str
) -> None:
    """The command ended with 1, as if it had been refused: a second run stored them again."""
    topic = f"full-{len(options)}-{len(how)}"
    create_topic(servers, topic)
    words = [sys.executable, "-m", "txn", "produce", topic, *options, "--bootstrap", servers]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            words, input=b"1\n2\n", stdout=full, stderr=subprocess.PIPE, timeout=WAIT_S
        )
    assert done.stderr.decode() == (
        "txn: cannot write the output: No space left on device. All is stored, do not repeat it: "
        f"2 records in {topic}{how}\n"
    )
    assert done.returncode == 0
    assert read_all(servers, topic) == [b"1", b"2"]


@contextmanager
def on_a_terminal(*words: str) -> Iterator[tuple[subprocess.Popen[bytes], "Terminal"]]:
    ours, its = pty.openpty()
    command = [sys.executable, "-m", "txn", *words]
    environment = {**os.environ, "TERM": "xterm", "LINES": "40", "COLUMNS": "120"}
    with subprocess.Popen(command, stdin=its, stdout=its, stderr=its, env=environment) as process:
        os.close(its)
        try:
            yield process, Terminal(ours)
        finally:
            process.kill()
            os.close(ours)


class Terminal:
    """A terminal's side of a command: all that was drawn so far."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.drawn = b""

    def type(self, keys: bytes) -> None:
        os.write(self._descriptor, keys)

    def await_text(self, text: bytes, times: int = 1) -> None:
        while self.drawn.count(text) < times:
            self.drawn += os.read(self._descriptor, 1 << 16)


def test_top_changes_its_tables_in_place_until_ctrl_c() -> None:
    """It draws on a terminal's other screen, and leaves it: a shell shows what it showed before."""
    with txn.Broker() as broker:
        create_topic(broker.bootstrap_servers, "watched")
        top = ("top", "--every", "100ms", "--bootstrap", broker.bootstrap_servers)
        with on_a_terminal(*top) as (process, terminal):
            terminal.await_text(b"watched", times=2)
            process.send_signal(signal.SIGINT)
            terminal.await_text(b"\x1b[?1049l")
            assert process.wait(WAIT_S) == 0
    assert terminal.drawn.startswith(b"\x1b[?1049h")
    assert b"Traceback" not in terminal.drawn


def test_top_shows_an_outage_and_goes_on(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data")
    create_topic(broker.bootstrap_servers, "watched")
    top = ("top", "--every", "100ms", "--bootstrap", broker.bootstrap_servers)
    with on_a_terminal(*top) as (process, terminal):
        terminal.await_text(b"watched")
        broker.stop()
        terminal.await_text(b"no answer: ")
        broker.restart()
        create_topic(broker.bootstrap_servers, "later")
        terminal.await_text(b"later")
        process.send_signal(signal.SIGTERM)
        terminal.await_text(b"\x1b[?1049l")
        assert process.wait(WAIT_S) == 0
    broker.stop()


def test_a_record_does_not_steer_the_terminal_that_shows_it(servers: str) -> None:
    create_topic(servers, "colours")
    send(plain_producer(servers), "colours", [b"\x1b[31mred\tand \xff\xc3\xa4"])
    with on_a_terminal("consume", "colours", "--bootstrap", servers) as (process, terminal):
        terminal.await_text(b"\n")
        assert process.wait(WAIT_S) == 0
    assert terminal.drawn == b"\\x1b[31mred\tand \\xff\xc3\xa4\r\n"


def test_a_terminal_is_told_how_its_lines_end(servers: str) -> None:
    create_topic(servers, "typed")
    with on_a_terminal("produce", "typed", "--bootstrap", servers) as (process, terminal):
        terminal.await_text(b"Each line becomes a record. Ctrl-D ends.")
        terminal.type(b"7 apples\n\x04")
        terminal.await_text(b"offsets 0 to 0")
        assert process.wait(WAIT_S) == 0
    assert read_all(servers, "typed") == [b"7 apples"]
