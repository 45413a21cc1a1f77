"""The command line of the suites; exit code 1 if a test fails that has no reason to."""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from harnesses.peers.jars import PeerUnavailableError
from harnesses.suites.expected import EXPECTED
from harnesses.suites.outcomes import SuiteError, SuiteRun
from harnesses.suites.suite import SUITES, Suite
from harnesses.suites.targets import served

BUILT = Path(__file__).parents[3] / "target" / "suites"


def main() -> int:
    """Run the suites one after the other, and print what each found."""
    options = _parser().parse_args()
    reports = []
    for name in options.suites or SUITES:
        suite = SUITES[name]
        print(f"{name}: {suite.release} on {options.target} …", file=sys.stderr, flush=True)
        try:
            run = _run(suite, options.target)
        except (SuiteError, PeerUnavailableError) as error:
            print(f"{name}: {error}", file=sys.stderr)
            return 2
        expected = EXPECTED[options.target].get(name, {})
        reports.append(_report(suite, run, expected))
        _show(run, expected, reports[-1], is_json=options.json)
    if options.json:
        print(json.dumps(reports, indent=2))
    return int(any(report["unexpected"] for report in reports))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="suites", description="Run other people's tests of their own clients."
    )
    parser.add_argument("suites", nargs="*", metavar="SUITE", help=", ".join(SUITES))
    parser.add_argument("--target", choices=("txn", "kafka"), default="txn")
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    return parser


def _run(suite: Suite, target: str) -> SuiteRun:
    built = BUILT / suite.name
    built.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="suites-") as data, served(target, Path(data)):
        return suite.run(built)


def _report(suite: Suite, run: SuiteRun, expected: dict[str, str]) -> dict[str, object]:
    return {
        "suite": suite.name,
        "release": suite.release,
        "passed": run.count("pass"),
        "skipped": run.count("skip"),
        "failed": {test: expected.get(test) for test in run.failures()},
        "unexpected": run.unexpected(expected),
        "mended": run.mended(expected),
    }


def _show(
    run: SuiteRun, expected: dict[str, str], report: dict[str, object], *, is_json: bool
) -> None:
    stream = sys.stderr if is_json else sys.stdout
    for test in run.failures():
        reason = expected.get(test)
        print(f"  failed: {test}" + (f" ({reason})" if reason else ""), file=stream)
        if reason is None:
            print(run.last_lines(test), file=stream)
    for test in run.mended(expected):
        print(f"  passes, although expected.py gives a reason: {test}", file=stream)
    print(
        f"{report['suite']}: {report['passed']} passed, {report['skipped']} skipped, "
        f"{len(run.failures())} failed, {len(run.unexpected(expected))} of them without a reason",
        file=stream,
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
