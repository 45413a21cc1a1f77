"""Flights through Spark for an hour, 20 years of them, with a kill a minute.

    python tests/spark/long/main.py [--minutes 60] [--rate 20] [--kill-every 60] [--seed N]
                                    [--state-store rocksdb|memory] [--directory D] [--json]

`--rate` is in years of flights an hour: 20 are 1,871 rows a second. Driver, Python workers and
broker die in turns; the memory of each is measured all the time. Both queries keep state.

Exit code 0: each row and each total once, no uncommitted row was read, memory is flat.
"""

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from spark.long.harness import LongResult, LongRun, plan
from spark.long.rows import Years


def main() -> int:
    given = _given()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    directory = given.directory or Path(tempfile.mkdtemp(prefix="txn-long-"))
    directory.mkdir(parents=True, exist_ok=True)
    seconds = given.minutes * 60
    _tell(f"data, checkpoints and logs: {directory}   seed: {given.seed}")
    run = LongRun(
        directory,
        Years(),
        seconds=seconds,
        rate=given.rate,
        kills=plan(seconds, given.kill_every, given.seed) if given.kill_every else [],
        options=["--state-store", given.state_store],
        tell=_tell,
    )
    result = run.run()
    holds = result.verdict.holds and result.is_flat
    if given.json:
        print(json.dumps(_as_data(result), indent=1))
    else:
        _show(result)
    if holds and given.directory is None:
        shutil.rmtree(directory)
    return 0 if holds else 1


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _as_data(result: LongResult) -> dict[str, object]:
    data = asdict(result)
    data["verdict"]["holds"] = result.verdict.holds
    data["memory_is_flat"] = result.is_flat
    return data


def _show(result: LongResult) -> None:
    verdict = result.verdict
    kills = ", ".join(f"{count} {who}" for who, count in sorted(result.kills.items()))
    print(
        f"{'exactly once' if verdict.holds else 'WRONG'}: {verdict.rows:,} of "
        f"{verdict.rows_expected:,} rows, {verdict.totals:,} of {verdict.totals_expected:,} "
        f"totals; missing {verdict.missing}, repeated {verdict.repeated}, wrong {verdict.wrong}, "
        f"uncommitted read {verdict.uncommitted_read}, held back {verdict.held_back}"
    )
    for example in verdict.examples:
        print(f"  {example}")
    cpu = ", ".join(f"{role} {spent_s:.0f} s" for role, spent_s in result.cpu_s.items())
    print(
        f"{sum(result.kills.values())} kills ({kills or 'none'}), {result.starts} starts, "
        f"{result.failures} ends without a kill; at most {result.behind_s_max} s behind; "
        f"{result.seconds:.0f} s; CPU: {cpu}"
    )
    print(f"memory {'is flat' if result.is_flat else 'GROWS'}:")
    for role in dict.fromkeys(life.role for life in result.lives):
        lives = [life for life in result.lives if life.role == role]
        longest = max(lives, key=lambda life: life.seconds)
        print(
            f"  {role}: peak {max(life.peak_mib for life in lives):.0f} MiB over {len(lives)} "
            f"lives; the longest, {longest.seconds:.0f} s: {longest.early_mib:.0f} MiB in its "
            f"second quarter, {longest.late_mib:.0f} MiB in its last"
        )


def _given() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=20, help="years of flights an hour")
    parser.add_argument("--kill-every", type=float, default=60, metavar="SECONDS", help="0: never")
    parser.add_argument("--seed", type=int, default=random.randrange(10_000))
    parser.add_argument("--state-store", choices=("rocksdb", "memory"), default="rocksdb")
    parser.add_argument("--directory", type=Path, help="keeps data, checkpoints and logs")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
