"""The outcomes that are read from what `go` and `cargo` print."""

import json

from harnesses.suites.crates import parse_cargo_output
from harnesses.suites.go_modules import parse_go_events
from harnesses.suites.outcomes import SuiteRun

GO_PACKAGE = "example.org/client@v1.0.0"


def _events(*events: tuple[str, str | None, str]) -> str:
    lines = []
    for action, test, output in events:
        event = {"Action": action, "Package": GO_PACKAGE, "Output": output}
        lines.append(json.dumps(event | ({"Test": test} if test else {})))
    return "\n".join(lines)


def test_each_test_of_a_package_has_its_outcome() -> None:
    run = parse_go_events(
        _events(
            ("run", "TestA", ""),
            ("pass", "TestA", ""),
            ("run", "TestB", ""),
            ("skip", "TestB", ""),
            ("run", "TestC", ""),
            ("output", "TestC", "expected 1\n"),
            ("fail", "TestC", ""),
            ("fail", None, ""),
        )
    )
    assert run.outcomes == {"client.TestA": "pass", "client.TestB": "skip", "client.TestC": "fail"}
    assert run.output == {"client.TestC": "expected 1\n"}


def test_a_test_that_was_under_way_at_a_panic_has_failed() -> None:
    run = parse_go_events(
        _events(("run", "TestA", ""), ("output", "TestA", "panic: nil\n"), ("fail", None, ""))
    )
    assert run.outcomes == {"client.TestA": "fail"}


def test_a_package_that_cannot_be_built_is_a_failure_by_its_name() -> None:
    run = parse_go_events(_events(("output", None, "undefined: x\n"), ("fail", None, "")))
    assert run.outcomes == {"client": "fail"}


def test_the_outcomes_of_a_crate_are_read_with_the_output_of_failures() -> None:
    run = parse_cargo_output(
        "test consumer::reads ... ok\ntest slow ... ignored\ntest producer::sends ... FAILED\n"
        "\nfailures:\n\n---- producer::sends stdout ----\nthread panicked\n\n\n"
        "failures:\n    producer::sends\n"
    )
    assert run.outcomes == {"consumer::reads": "pass", "slow": "skip", "producer::sends": "fail"}
    assert "thread panicked" in run.output["producer::sends"]


def test_a_failure_without_a_reason_and_a_reason_without_a_failure_are_found() -> None:
    run = SuiteRun({"a": "fail", "b": "fail", "c": "pass"}, {})
    reasons = {"a": "the test expects three brokers", "c": "mended since"}
    assert run.unexpected(reasons) == ["b"]
    assert run.mended(reasons) == ["c"]
