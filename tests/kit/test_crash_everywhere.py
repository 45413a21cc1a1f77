"""`crash_everywhere` finds the five classic mistakes, passes a right program, and tells stories.

The programs are those of `examples/testing/`. Each is played with the stops that show its mistake;
`make crash-everywhere` plays them with every stop at every step.
"""

import importlib.util
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

import txn
from support import on_engine
from txn.errors import RejectedError
from txn.testing import STOPS, CrashReport, Fault, TestBroker, crash_everywhere
from txn.testing.crash import compare
from txn.testing.program import LOAD_S

EXAMPLES = Path(__file__).parents[2] / "examples" / "testing"


def program(name: str) -> Callable[..., object]:
    """The function of a program of `examples/testing/`."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    function: Callable[..., object] = module.copy
    return function


FOUR: Final = {"in": [f"record {number}" for number in range(4)]}

SIX: Final = {"in": [f"record {number}" for number in range(6)]}
"""The loss of a batch shows only when another one is committed behind it."""


def played(name: str, *stops: str, **options: Any) -> CrashReport:
    given = {"stops": stops or tuple(STOPS), "jobs": 2, "input": FOUR, **options}
    return crash_everywhere(program(name), **given)


def story_of(name: str, *stops: str, **options: Any) -> str:
    """The message of a program that is wrong."""
    with pytest.raises(AssertionError) as raised:
        played(name, *stops, **options)
    return str(raised.value)


def test_a_right_program_passes_stops_of_every_kind() -> None:
    report = played("right", quick=14)
    assert report.findings == ()
    assert report.runs == 14
    assert {"Produce 2", "EndTxn 2"} <= set(report.steps)
    assert len(report.not_reached) <= 2


def test_a_right_program_on_the_native_engine_passes_stops_of_every_kind() -> None:
    words = on_engine.command("native", EXAMPLES / "right.py", "copy")
    report = crash_everywhere(words, jobs=2, input=FOUR, quick=4)  # some 10 s each
    assert report.findings == ()
    assert report.runs == 4
    assert not any("AddPartitionsToTxn" in step for step in report.steps)  # it is of version 1


def test_offsets_outside_of_the_transaction_are_found() -> None:
    story = story_of("offsets_outside", "kill after", steps=["EndTxn"])
    assert re.search(r"doubled: out has 'RECORD \d' 2 times", story)
    assert re.search(r"EndTxn 'copies-1': commit   ← the broker does this, and the program", story)


def test_a_rewind_that_is_forgotten_is_found() -> None:
    story = story_of("rewinding_forgotten", "refuse", input=SIX)
    assert "lost: out lacks 'RECORD 0'" in story
    assert re.search(r" 2 records   ← refused by INVALID_RECORD", story)


def test_two_transactional_ids_for_a_partition_are_found() -> None:
    story = story_of("two_ids", "pause", steps=["AddOffsetsToTxn"])
    assert re.search(r"doubled: out has 'RECORD \d' 2 times", story)
    assert "a second instance starts" in story
    assert "the first instance goes on" in story


def test_a_side_effect_inside_is_found() -> None:
    story = story_of("side_effect_inside", "kill", steps=["EndTxn"], files="mails")
    assert re.search(r"doubled: mails has 'dear reader of record \d' 2 times", story)
    assert "doubled: out" not in story


def test_a_swallowed_error_is_found() -> None:
    story = story_of("swallowed_error", "fence", steps=["TxnOffsetCommit"])
    assert re.search(r"lost: out lacks 'RECORD \d'", story)
    assert "← another producer took the transactional id before" in story


def test_a_story_has_numbered_lines_and_ends_with_the_faults() -> None:
    story = story_of("rewinding_forgotten", "refuse", input=SIX)
    head, wrong, title, *lines, again = story.splitlines()
    assert re.fullmatch(r"crash_everywhere: \d+ steps, 3 runs, .*; 0 not reached; \d wrong.*", head)
    assert re.fullmatch(r"wrong: \d by refuse", wrong)
    assert re.fullmatch(r"The shortest story, refuse at Produce \d:", title)
    numbered = [line for line in lines if not line.startswith("  ⇒ ")]
    assert [int(line[:3]) for line in numbered] == list(range(1, len(numbered) + 1))
    assert lines[-1].startswith("  ⇒ lost: ")
    stop, _, step = title.removeprefix("The shortest story, ")[:-1].partition(" at ")
    assert again == f"Play it alone: crash_everywhere(…, stops=[{stop!r}], steps=[{step!r}])"


# ---------------------------------------------------------------- a broken checker


def test_a_checker_whose_stops_never_happen_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its runs would all be undisturbed, and every program right."""
    monkeypatch.setattr(Fault, "counts", lambda self, request: False)
    with pytest.raises(RejectedError, match="2 of 2 stops did not happen"):
        played("rewinding_forgotten", "refuse")


def test_a_checker_that_reads_no_output_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TestBroker, "records", lambda self, topic, **_: [])
    with pytest.raises(RejectedError, match="wrote nothing into out when nothing stopped it"):
        played("rewinding_forgotten", "refuse")


@pytest.mark.parametrize(
    ("found", "faults"),
    [
        ([b"a", b"b"], []),
        ([b"b", b"a"], []),
        ([b"a"], ["lost: out lacks 'b'"]),
        ([b"a", b"b", b"b"], ["doubled: out has 'b' 2 times"]),
        ([b"a", b"b", b"c"], ["unexpected: out has 'c'"]),
        ([b"b", b"b"], ["lost: out lacks 'a'", "doubled: out has 'b' 2 times"]),
    ],
)
def test_each_record_has_to_be_there_once(found: list[object], faults: list[str]) -> None:
    assert compare("out", [b"a", b"b"], found) == faults


# ---------------------------------------------------------------- programs that cannot be run


NEW_ID: Final = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import os, right, txn
kind = txn.Producer
txn.Producer = lambda **given: kind(**given | {{"transactional_id": f"copies-{{os.getpid()}}"}})
right.copy(sys.argv[1])
"""
"""Right by KIP-447: the generation of the group fences instances that stood still."""


OTHER_SETTINGS: Final = f"""
import sys
sys.path.insert(0, {str(EXAMPLES)!r})
import swallowed_error
kind = swallowed_error.Consumer
swallowed_error.Consumer = lambda given: kind({{{{**given, **{{settings}}}}}})
swallowed_error.copy(sys.argv[1])
"""


def does_nothing(servers: str) -> None:
    """A program that ends at once."""


def fails(servers: str) -> None:
    """A program with a bug."""
    raise ValueError(f"cannot parse {servers[:9]}")


def test_python_is_that_of_the_test_and_an_exception_is_told_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another Python, without txn, came first on the PATH; the story had the exception's text."""
    script = tmp_path / "failing.py"
    script.write_text("import json, txn\n\njson.loads('{')\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RejectedError) as told:
        crash_everywhere(["python", str(script)], jobs=1, input=FOUR)
    assert f"column 2 (char 1) ({script}:3)" in str(told.value)


def test_a_command_finds_its_broker_in_words_and_environment(tmp_path: Path) -> None:
    text = f"import sys, os; sys.path.insert(0, {str(EXAMPLES)!r}); import right; "
    text += "assert sys.argv[1] == os.environ['BOOTSTRAP_SERVERS']; right.copy(sys.argv[1])"
    command = [sys.executable, "-c", text, "{servers}"]
    report = crash_everywhere(command, stops=["kill after"], quick=2, jobs=2, input=FOUR)
    assert (report.runs, report.findings) == (2, ())


def test_a_program_that_does_nothing_is_told() -> None:
    with pytest.raises(RejectedError, match=r"did not consume its input.*ended with code 0"):
        crash_everywhere(does_nothing)


def commits_nothing(servers: str) -> None:
    consumer = txn.Consumer(
        bootstrap_servers=servers, group_id="copies", auto_offset_reset="earliest"
    )
    consumer.subscribe(["in"])
    with (
        consumer,
        txn.Producer(bootstrap_servers=servers, transactional_id="c-1") as producer,
        producer.transaction() as t,
    ):
        for message in consumer.consume(4, timeout=10):
            t.produce("out", message.value())


def test_a_program_that_never_commits_its_input_is_told_to_do_so() -> None:
    with pytest.raises(RejectedError) as told:
        crash_everywhere(commits_nothing, input=FOUR)
    text = str(told.value)
    assert text.index("transaction(consumer)") < text.index("it ended with code 0 in 5 starts")
    assert "within" not in text


def test_a_program_that_takes_too_long_is_told_about_the_timeout_too() -> None:
    """On a busy machine the error blamed the offsets of a program that had not begun to read."""
    with pytest.raises(RejectedError, match=r"a longer timeout.*did not end within 1 s"):
        crash_everywhere(["sleep", "60"], timeout=1)


def test_a_program_that_fails_undisturbed_is_told_with_its_last_words() -> None:
    with pytest.raises(RejectedError, match=r"ended with code 1.*ValueError: cannot parse 127"):
        crash_everywhere(fails)


@pytest.mark.parametrize(
    ("app", "told"),
    [
        (lambda servers: None, "a function at the top level of a module, or a command"),
        ([], "the command is empty"),
        (["/no/such/program"], "cannot run '/no/such/program'"),
        (threading.Event, "cannot be run in a process of its own|takes 0 arguments"),
    ],
)
def test_a_program_that_cannot_be_run_is_refused(app: Any, told: str) -> None:
    with pytest.raises(RejectedError, match=told):
        crash_everywhere(app)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"stops": ["kil"]}, r"there is no stop 'kil'"),
        ({"steps": ["EndTx"]}, r"did you mean EndTxn\?"),
        ({"steps": ["OffsetCommit"]}, "the program takes no step OffsetCommit. It takes "),
        ({"quick": 0}, "quick is the number of runs"),
        ({"input": {}}, "there is no input"),
        ({"expected": {"elsewhere": [b"x"]}}, "expected names 'elsewhere', and outputs are out"),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(options: dict[str, Any], told: str) -> None:
    with pytest.raises(RejectedError, match=told):
        played("right", **options)


def test_ctrl_c_ends_it_at_once_and_leaves_no_process(tmp_path: Path) -> None:
    """A terminal's Ctrl-C is for the processes of the runs too; one of them told their ends."""
    text = (
        f"import sys; sys.path.insert(0, {str(EXAMPLES)!r}); import right; "
        "from txn.testing import crash_everywhere; "
        f"crash_everywhere(right.copy, jobs=2, input={FOUR!r}, stops=['kill'] * 99)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", text],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stderr is not None
    with started, started.stderr:
        assert "of " in started.stderr.readline()  # told after 5 s of runs
        os.killpg(started.pid, signal.SIGINT)
        told = started.stderr.read()
        code = started.wait(LOAD_S / 2)  # it waited that long for ends that nobody told
    assert (code, told.count("KeyboardInterrupt")) == (-signal.SIGINT, 1), told
    assert list(tmp_path.iterdir()) == []


def test_aborted_records_of_the_input_are_found_in_the_output() -> None:
    text = OTHER_SETTINGS.format(settings="{'isolation.level': 'read_uncommitted'}")
    command = [sys.executable, "-c", text, "{servers}"]
    with pytest.raises(AssertionError, match=r"doubled: out has 'RECORD 0' 2 times"):
        crash_everywhere(command, stops=["aborted input"], jobs=1, input=FOUR)


def test_a_program_that_waits_for_its_own_open_transaction_is_right() -> None:
    """A new transactional id after a kill: group offsets are unstable until the old one expires."""
    command = [sys.executable, "-c", NEW_ID, "{servers}"]
    report = crash_everywhere(command, stops=["kill"], steps=["EndTxn 1"], jobs=1, input=FOUR)
    assert (report.runs, report.findings) == (1, ())


def test_a_program_is_run_for_a_caller_with_more_than_1024_open_files() -> None:
    """The host of its runs waited by `select`, which takes no descriptor above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        report = played("right", "kill", quick=1)
    finally:
        for each in opened:
            os.close(each)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert report.runs == 1


def test_no_process_and_no_thread_is_left() -> None:
    played("right", "kill", quick=1)
    names = [each.name for each in threading.enumerate()]
    assert not [name for name in names if name.startswith(("txn-program", "txn-crash"))]
