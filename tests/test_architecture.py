"""ARCHITECTURE.md names files and functions that exist, and its walks name those on the path.

Each code span of it and of docs/internals.md is looked for in the source. Every Python file and
function that a walk names runs when a transaction is committed and a broker starts. The files
that other pages name exist, too, and the index of decisions has every record.
"""

import ast
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest

import txn
from harnesses.black_box.power import OTHER_BOOT
from support import clients
from support.at_work import copy_at_work
from support.transcript import SAVED
from support.wire_producer import WireProducer, identity

ROOT: Final = Path(__file__).parent.parent
PYTHON: Final = ROOT / "python" / "txn"
SOURCES: Final = sorted(
    path
    for pattern in ("python/txn/**/*.py", "rust/**/*.rs", "tests/**/*.py")
    for path in ROOT.glob(pattern)
)
WALKS: Final = (
    "A batch, from socket to segment to socket",
    "An EndTxn, from socket to marker",
    "A start",
)
NOT_OURS: Final = {"sendfile": "a system call", 'grep -rn "P4" tests/': "a command"}

SPAN: Final = re.compile(r"`([^`]+)`")
FENCE: Final = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
FILE: Final = re.compile(r"[\w/{},-]+\.(?:py|rs|md)")
SOURCE_FILE: Final = re.compile(r"[\w/{},-]+\.(?:py|rs)\b")
NAME: Final = re.compile(r"[A-Za-z_]\w*")
METHOD: Final = re.compile(r"([A-Z]\w*)(?:\.|::)(\w+)")


def section(title: str) -> str:
    """The text of a section without its drawings."""
    text = FENCE.sub("", (ROOT / "ARCHITECTURE.md").read_text())
    _, found, rest = text.partition(f"\n## {title}\n")
    assert found, f"ARCHITECTURE.md has no section {title}"
    return rest.partition("\n## ")[0]


def spans() -> list[str]:
    pages = (ROOT / "ARCHITECTURE.md", ROOT / "docs" / "internals.md")
    texts = [FENCE.sub("", page.read_text()) for page in pages]
    return sorted({span for text in texts for span in SPAN.findall(text)} - NOT_OURS.keys())


@cache
def text_of(path: Path) -> str:
    return path.read_text()


def files_of(name: str) -> list[Path]:
    """The files that a name of a page means; `{a,b}` stands for two."""
    braces = re.search(r"\{(.*?)\}", name)
    if braces:
        parts = [name.replace(braces[0], each) for each in braces[1].split(",")]
        return [path for part in parts for path in files_of(part)]
    found = [path for path in (*SOURCES, *ROOT.glob("docs/*.md")) if path.match(f"*/{name}")]
    assert found, f"there is no file {name}"
    return found


def defines(path: Path, name: str) -> bool:
    """Say whether a file defines a function, a class or a field."""
    return bool(re.search(rf"\b(?:def|class|fn|struct|enum|trait|type) {name}\b", text_of(path)))


@pytest.mark.parametrize("span", spans())
def test_a_name_in_architecture_is_in_the_source(span: str) -> None:
    path, _, name = span.partition(": ")
    method = METHOD.fullmatch(span)
    if FILE.fullmatch(path):
        found = files_of(path)
        assert not name or any(defines(each, name) for each in found), f"{path} has no {name}"
    elif method:
        assert any(
            defines(each, method[2]) and re.search(rf"\b{method[1]}\b", text_of(each))
            for each in SOURCES
        )
    elif "=" in span:
        key, _, value = span.partition("=")
        assert any(f'"{key}"' in text_of(each) and value in text_of(each) for each in SOURCES)
    elif NAME.fullmatch(span):
        assert any(defines(each, span) or f'"{span}"' in text_of(each) for each in SOURCES)
    else:
        words = NAME.findall(span)
        assert any(all(word in text_of(each) for word in words) for each in SOURCES)


def test_architecture_is_read_in_one_sitting() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    assert len(text.split()) <= 2000, "move cases to docs/internals.md"
    assert not [line for line in text.splitlines() if len(line) > 160]
    for walk in WALKS:
        assert re.findall(r"^(\d)\. ", section(walk), re.MULTILINE) == list("1234567")


# ---------------------------------------------------------------- other pages


def saved_by(page: Path) -> set[str]:
    """The files that a reader of the page writes, in its folder for the steps of the tutorial."""
    pages = page.parent.glob("*.md") if page.parent.name == "tutorial" else [page]
    return {name for each in pages for name in SAVED.findall(text_of(each))}


def mentions() -> list[tuple[str, str]]:
    """(page, file) for each source file that a page names, but for those that it lets one save."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    pages += [*(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").glob("*.md")]
    return sorted(
        {
            (str(page.relative_to(ROOT)), found[0])
            for page in pages
            for span in SPAN.findall(FENCE.sub("", page.read_text()))
            if (found := SOURCE_FILE.match(span)) and found[0] not in saved_by(page)
        }
    )


@pytest.mark.parametrize(("page", "name"), mentions())
def test_a_source_file_that_a_page_names_exists(page: str, name: str) -> None:
    assert files_of(name)


def test_the_index_of_decisions_has_every_record_once() -> None:
    directory = ROOT / "docs" / "decisions"
    records = sorted(path.name for path in directory.glob("[0-9]*.md"))
    index = (directory / "README.md").read_text()
    assert re.findall(r"\]\((\d.*?\.md)\)", index) == records
    assert [int(name[:4]) for name in records] == list(range(1, len(records) + 1))
    titles = [(directory / name).read_text().partition(".")[0] for name in records]
    assert titles == [f"# {number}" for number in range(1, len(records) + 1)]


# ---------------------------------------------------------------- the walks


class Calls:
    """The Python functions of txn that were called: file and qualified name."""

    def __init__(self) -> None:
        self._codes: set[CodeType] = set()

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch this thread, and those that begin meanwhile."""
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            self._codes.add(frame.f_code)

    def named(self) -> set[tuple[Path, str]]:
        return {
            (Path(code.co_filename), code.co_qualname)
            for code in self._codes
            if code.co_filename.startswith(str(PYTHON))
        }


def live(data: Path, durability: str) -> None:
    """Serve a transaction over two partitions' topics and a group's offset; leave one open."""
    with txn.Broker(data, durability=durability) as broker:
        servers = broker.bootstrap_servers
        clients.create_topic(servers, "orders", 1)
        with WireProducer(servers) as producer:
            first = identity(producer.start(two_phase=False))
            assert producer.produce(first, 0, b"apples") == 0
            assert producer.commit_offset(first, "shop", "orders", 0) == 0
            following = identity(producer.end(first))
            assert producer.produce(following, 0, b"pears") == 0
            copy_at_work(data, data.with_name("after-a-power-failure"))
        with WireProducer(servers, "old") as old:
            begun = identity(old.start(two_phase=False))
            old.ask(
                24,
                3,
                v3_and_below_transactional_id="old",
                v3_and_below_producer_id=begun[0],
                v3_and_below_producer_epoch=begun[1],
                v3_and_below_topics=[{"name": "orders", "partitions": [0]}],
            )
            identity_of_old = old.end(begun, version=4)
            assert int(identity_of_old.error_code) == 0


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[Path, str]]:
    calls = Calls()
    with calls.watched():
        for durability in ("process", "commit"):
            data = tmp_path_factory.mktemp(durability) / "data"
            live(data, durability)
            txn.Broker(data, durability=durability).close()
            left = data.with_name("after-a-power-failure")
            (left / ".lock").write_bytes(OTHER_BOOT)
            txn.Broker(left, durability=durability).close()
    return calls.named()


def functions_of(text: str) -> set[str]:
    """The Python functions that a walk names, each as the end of its qualified name."""
    names = {span.rpartition(": ")[2] for span in SPAN.findall(text) if "::" not in span}
    defined = {
        node.name
        for path in PYTHON.rglob("*.py")
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return {name for name in names if name.rpartition(".")[2] in defined}


def has_code(path: Path) -> bool:
    """Say whether a file has a function with a body; protocols and plain data have none."""
    functions = (n for n in ast.walk(ast.parse(text_of(path))) if isinstance(n, ast.FunctionDef))
    return any(
        not (isinstance(last := each.body[-1], ast.Expr) and isinstance(last.value, ast.Constant))
        for each in functions
    )


@pytest.mark.parametrize("walk", WALKS)
def test_each_function_that_a_walk_names_runs_on_it(
    walk: str, called: set[tuple[Path, str]]
) -> None:
    names = functions_of(section(walk))
    ran = {f".{name}" for _, name in called}
    missed = {name for name in names if not any(each.endswith(f".{name}") for each in ran)}
    assert names
    assert not missed


@pytest.mark.parametrize("walk", WALKS)
def test_each_python_file_that_a_walk_names_has_a_part_in_it(
    walk: str, called: set[tuple[Path, str]]
) -> None:
    named = {
        path
        for span in SPAN.findall(section(walk))
        if FILE.fullmatch(span.partition(": ")[0])
        for path in files_of(span.partition(": ")[0])
        if path.is_relative_to(PYTHON) and has_code(path)
    }
    assert named
    assert named <= {path for path, _ in called}
