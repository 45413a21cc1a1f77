"""Suites of Rust crates: `cargo` fetches the crate with its tests, and runs them."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from harnesses.suites.outcomes import Outcomes, SuiteError, SuiteRun

FETCHING: Final = """\
[package]
name = "suites"
version = "0.0.0"
edition = "2021"

[lib]
path = "lib.rs"

[dependencies]
{crate} = "={version}"

[workspace]
"""

TEST_LINE: Final = re.compile(r"^test (\S+) \.\.\. (ok|FAILED|ignored)", re.MULTILINE)
OUTPUT: Final = re.compile(r"^---- (\S+) stdout ----\n(.*?)(?=^---- |^failures:)", re.M | re.S)
OUTCOMES: Final = {"ok": "pass", "FAILED": "fail", "ignored": "skip"}


def run_crate_tests(
    crate: str,
    version: str,
    directory: Path,
    environment: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    updates: Sequence[str] = (),
) -> SuiteRun:
    """Run the tests of a crate's release.

    Args:
        crate: Its name in the registry.
        version: Its release.
        directory: Where its sources and what is built of them go; used again by the next run.
        environment: Variables over those of this process.
        options: More arguments of `cargo test`.
        updates: Its dependencies of which today's Rust does not build the locked release.

    Raises:
        SuiteError: There is no cargo, or the crate cannot be fetched or built.
    """
    sources = _fetched(crate, version, directory, updates)
    done = subprocess.run(
        ["cargo", "test", "--no-fail-fast", *options],
        cwd=sources,
        env={**os.environ, "CARGO_TARGET_DIR": str(directory / "target"), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    run = parse_cargo_output(done.stdout)
    if not run.outcomes:
        raise SuiteError(f"cargo test ran nothing of {crate}:\n{done.stderr[-2000:]}")
    return run


def parse_cargo_output(text: str) -> SuiteRun:
    """Read what `cargo test` prints on standard output."""
    outcomes: Outcomes = {name: OUTCOMES[word] for name, word in TEST_LINE.findall(text)}  # type: ignore[misc]
    return SuiteRun(outcomes, dict(OUTPUT.findall(text)))


def _fetched(crate: str, version: str, directory: Path, updates: Sequence[str]) -> Path:
    sources = directory / f"{crate}-{version}"
    if sources.exists():
        return sources
    manifest = directory / "fetch" / "Cargo.toml"
    manifest.parent.mkdir(parents=True, exist_ok=True)
    manifest.write_text(FETCHING.format(crate=crate, version=version))
    (manifest.parent / "lib.rs").touch()
    try:
        listed = subprocess.run(
            ["cargo", "metadata", "--format-version=1", "--manifest-path", str(manifest)],
            capture_output=True,
            text=True,
            check=False,
        )
    except FileNotFoundError:
        raise SuiteError("this suite needs Rust's cargo on the PATH") from None
    if listed.returncode != 0:
        raise SuiteError(f"cargo cannot fetch {crate} {version}:\n{listed.stderr}")
    packages = json.loads(listed.stdout)["packages"]
    [found] = [each["manifest_path"] for each in packages if each["name"] == crate]
    shutil.copytree(Path(found).parent, sources)
    # The toolchain that it is developed with need not be installed here.
    (sources / "rust-toolchain.toml").unlink(missing_ok=True)
    with (sources / "Cargo.toml").open("a") as manifest_of_crate:
        manifest_of_crate.write("\n[workspace]\n")  # it is no part of the workspace around it
    for dependency in updates:
        command = ["cargo", "update", "--quiet", "--package", dependency]
        updated = subprocess.run(command, cwd=sources, capture_output=True, text=True, check=False)
        if updated.returncode != 0:
            shutil.rmtree(sources)
            raise SuiteError(f"cargo cannot update {dependency} of {crate}:\n{updated.stderr}")
    return sources
