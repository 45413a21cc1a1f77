"""Real mounts that only one process sees: a read-only one, and an overlay.

The process is in a mount namespace of its own, so that nothing is left when it ends. Where this
user may not make one, the tests are skipped.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

READ_ONLY: Final = 'mount --bind "$1" "$2" && mount -o remount,bind,ro "$2" && shift 2 && exec "$@"'
OVERLAY: Final = (
    'mount -t overlay overlay -o "lowerdir=$1,upperdir=$2,workdir=$3" "$4" && shift 4 && exec "$@"'
)


def in_namespace(script: str, *words: Path | str) -> list[str]:
    """The command of a process that makes mounts by a shell script, and goes on as another."""
    return ["unshare", "--mount", "sh", "-ec", script, "sh", *map(str, words)]


def read_only(source: Path, mounted: Path) -> list[str]:
    """The beginning of a command that sees a directory at `mounted`, and cannot change it."""
    mounted.mkdir(exist_ok=True)
    return _permitted(in_namespace(READ_ONLY, source, mounted))


def overlay(lower: Path, upper: Path, mounted: Path) -> list[str]:
    """The beginning of a command that sees `lower` at `mounted`; its changes go to `upper`."""
    layers = [upper / "upper", upper / "work", mounted]
    for each in layers:
        each.mkdir(parents=True, exist_ok=True)
    return _permitted(in_namespace(OVERLAY, lower, *layers))


def _permitted(command: Sequence[str]) -> list[str]:
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare, which makes mount namespaces")
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=60)
    if tried.returncode:
        pytest.skip(f"this user may not mount: {tried.stderr.strip()}")
    return [*command]


def python(*words: str) -> list[str]:
    """The end of such a command: a Python program."""
    return [sys.executable, *words]
