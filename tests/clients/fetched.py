"""Other people's clients, each fetched once by the tool of its language, below `target/clients`.

`versions.toml` has their releases. A directory belongs to one set of releases and sources: its name
has their hash. It appears whole or not at all.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

HERE: Final = Path(__file__).parent
PLACE: Final = HERE.parents[1] / "target" / "clients"
VERSIONS: Final[Mapping[str, Any]] = tomllib.loads((HERE / "versions.toml").read_text())
FETCH_SECONDS_MAX: Final = 900.0

OUT_OF_REACH: Final = (
    "Failed to establish a new connection",
    "ENOTFOUND",
    "dial tcp",
    "Could not resolve host",
)
"""Words of pip, npm, go and cargo about a registry that does not answer."""

CARGO: Final = """\
[package]
name = "client"
version = "0.0.0"
edition = "2021"

[[bin]]
name = "client"
path = "main.rs"

[dependencies]
tokio = {{ version = "1", features = ["full"] }}
chrono = "0.4"
{pins}

[workspace]
"""

Command = list[str]


def python_client(program: str) -> Command:
    """Return the command of a program on Python's clients, in an environment of their own."""
    pins = [f"{name}=={release}" for name, release in VERSIONS["python"].items()]

    def fetch(place: Path) -> None:
        _run([sys.executable, "-m", "venv", str(place)], place)
        _run([str(place / "bin" / "python"), "-m", "pip", "install", "-q", *pins], place)

    place = _fetched("python", "\n".join([sys.version, *pins]), fetch, is_movable=False)
    return [str(place / "bin" / "python"), str(HERE / "python" / program)]


def node_client(program: str) -> Command:
    """Return the command of a program on a client of Node.js."""
    _need("node", "npm")
    pins = [f"{name}@{release}" for name, release in VERSIONS["node"].items()]
    source = HERE / "node" / program

    def fetch(place: Path) -> None:
        _run(["npm", "install", "--silent", "--no-audit", "--prefix", str(place), *pins], place)
        shutil.copy(source, place)

    place = _fetched("node", "\n".join([*pins, source.read_text()]), fetch)
    return ["node", str(place / program)]


def go_client(name: str) -> Command:
    """Return the command of a program on a client of Go."""
    _need("go")
    pins = VERSIONS["go"][name]
    source = HERE / "go" / f"{name}.go"
    module = "module client\n\ngo 1.24\n\nrequire (\n"
    module += "".join(f"\t{path} {release}\n" for path, release in pins.items()) + ")\n"

    def fetch(place: Path) -> None:
        (place / "go.mod").write_text(module)
        shutil.copy(source, place / "main.go")
        _run(["go", "mod", "tidy"], place)
        _run(["go", "build", "-o", "client", "."], place)

    place = _fetched(f"go-{name}", module + source.read_text(), fetch)
    return [str(place / "client")]


def rust_client(name: str) -> Command:
    """Return the command of a program on a client of Rust."""
    _need("cargo")
    source = HERE / "rust" / f"{name}.rs"
    pin = f'{name} = "={VERSIONS["rust"][name]}"'
    manifest = CARGO.format(pins=pin)

    def fetch(place: Path) -> None:
        (place / "Cargo.toml").write_text(manifest)
        shutil.copy(source, place / "main.rs")
        # What is built of its dependencies is kept for the next version of the program.
        built = str(PLACE / "cargo")
        _run(["cargo", "build", "--quiet", "--target-dir", built], place)
        shutil.copy(Path(built) / "debug" / "client", place / "client")

    place = _fetched(f"rust-{name}", manifest + source.read_text(), fetch)
    return [str(place / "client")]


def _need(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"no {tool} on the PATH")


def _fetched(
    kind: str, key: str, fetch: Callable[[Path], None], *, is_movable: bool = True
) -> Path:
    """Return the directory of a client, made by `fetch` if need be.

    A virtual environment is not movable: its scripts name its place. It gets a mark at its end.
    """
    place = PLACE / f"{kind}-{hashlib.sha256(key.encode()).hexdigest()[:12]}"
    mark = place / ".fetched"
    PLACE.mkdir(parents=True, exist_ok=True)
    if not mark.exists():
        with _locked(PLACE / f".{place.name}.lock"):
            if not mark.exists():
                shutil.rmtree(place, ignore_errors=True)
                work = Path(tempfile.mkdtemp(dir=PLACE)) if is_movable else place
                try:
                    fetch(work)
                except subprocess.CalledProcessError as failed:
                    shutil.rmtree(work, ignore_errors=True)
                    if any(words in failed.stderr for words in OUT_OF_REACH):
                        pytest.skip(f"{kind}: its registry is out of reach")
                    raise AssertionError(f"{kind}: {failed.stderr[-4000:]}") from failed
                if work != place:
                    work.rename(place)
                mark.touch()
    return place


def _run(command: Command, directory: Path) -> None:
    subprocess.run(
        command,
        cwd=directory if directory.exists() else None,
        env={**os.environ, "GOFLAGS": "-buildvcs=false -mod=mod"},
        capture_output=True,
        text=True,
        timeout=FETCH_SECONDS_MAX,
        check=True,
    )


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
