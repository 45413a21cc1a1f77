"""Suites of Go modules: `go` fetches the module, and runs the tests that are in it."""

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from harnesses.suites.outcomes import Outcomes, SuiteError, SuiteRun

TIMEOUT: Final = "20m"
ENDINGS: Final = ("pass", "fail", "skip")


def run_go_tests(
    module: str,
    packages: Sequence[str],
    environment: Mapping[str, str],
    *,
    skip: str = "",
) -> SuiteRun:
    """Run the tests of some packages of a module.

    Args:
        module: Path and version, as `go get` takes them.
        packages: Below the module, as `go test` takes them.
        environment: Variables over those of this process.
        skip: A regular expression of tests that are left out.

    Raises:
        SuiteError: There is no Go, or the module cannot be fetched or built.
    """
    if shutil.which("go") is None:
        raise SuiteError("this suite needs Go 1.23 or newer on the PATH")
    command = ["go", "test", "-mod=mod", "-count=1", f"-timeout={TIMEOUT}", "-json"]
    done = subprocess.run(
        [*command, *([f"-skip={skip}"] if skip else []), *packages],
        cwd=_fetched(module),
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    run = parse_go_events(done.stdout)
    if not run.outcomes:
        raise SuiteError(f"go test ran nothing of {module}:\n{done.stdout[-2000:]}{done.stderr}")
    return run


def parse_go_events(text: str) -> SuiteRun:
    """Read the events that `go test -json` prints.

    A test without an end was under way when its package ended by a panic: it failed. A package
    that failed beside all its tests is a failure by its own name.
    """
    output: defaultdict[str, list[str]] = defaultdict(list)
    outcomes: Outcomes = {}
    under_way: set[str] = set()
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        event: dict[str, Any] = json.loads(line)
        name = _name(event)
        match event["Action"]:
            case "run":
                under_way.add(name)
            case "output":
                output[name].append(event["Output"])
            case "pass" | "fail" | "skip" if "Test" in event:
                under_way.discard(name)
                outcomes[name] = event["Action"]
            case "fail":
                outcomes |= dict.fromkeys(under_way, "fail")
                under_way.clear()
                if not any(_is_of(test, name) and outcomes[test] == "fail" for test in outcomes):
                    outcomes[name] = "fail"
    failed = {test: "".join(output[test]) for test, each in outcomes.items() if each == "fail"}
    return SuiteRun(outcomes, failed)


def _name(event: Mapping[str, Any]) -> str:
    package = event.get("Package", "").rsplit("/", 1)[-1].split("@")[0]
    return f"{package}.{event['Test']}" if "Test" in event else package


def _is_of(test: str, package: str) -> bool:
    return test.startswith(f"{package}.")


def _fetched(module: str) -> Path:
    done = subprocess.run(
        ["go", "mod", "download", "-json", module], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SuiteError(f"go cannot fetch {module}:\n{done.stdout}{done.stderr}")
    return Path(json.loads(done.stdout)["Dir"])
