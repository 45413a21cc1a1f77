"""Imports point inward, as ARCHITECTURE.md draws it, and pure packages touch no world.

Read from the source, so nothing is imported and no branch is missed. Imports under
`if TYPE_CHECKING:` are for the type checker alone and do not count.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

PYTHON = Path(__file__).parent.parent / "python"

# A package imports from lower layers, or from itself. The outermost may import each other.
LAYERS = (
    {
        "counts",
        "errors",
        "hints",
        "identifiers",
        "java_pattern",
        "line_writer",
        "printable",
    },
    {"arrow_buffers", "clock", "config", "forks", "logs", "moments", "timed_http"},
    {"wire"},
    {"security"},
    {"partition", "coordinator", "metadata"},
    {"storage"},
    {"broker", "inspect"},
    {"server"},
    {"access"},
    {"cluster"},
    {
        "admin",
        "aio",
        "client",
        "processor",
        "spark",
        "sql",
        "table",
        "explain",
        "cli",
        "console",
        "demo",
        "testing",
        "manual",
        "metrics",
        "otel",
        "__init__",
        "__main__",
    },
)
LAYER_OF = {part: depth for depth, parts in enumerate(LAYERS) for part in parts}
OUTERMOST = len(LAYERS) - 1

PURE = {"partition", "coordinator", "metadata", "security"}
WORLD = {
    "asyncio",
    "os",
    "random",
    "secrets",
    "select",
    "socket",
    "subprocess",
    "threading",
    "time",
}

MAY_IMPORT_CORE = (
    *("txn.storage.native", "txn.storage.native_log", "txn.storage.native_metadata"),
    *("txn.storage.past", "txn.storage.log_upkeep"),
    *("txn.server", "txn.spark"),
    *(
        "txn.inspect.segments",
        "txn.access",
        "txn.cluster.brokers",
        "txn.testing.client",
        "txn.testing.clock",
    ),
    *("txn.wire.checksums", "txn.wire.plain_bodies"),  # pure functions of bytes
    "txn.client.callbacks",  # looks at the interpreter's own state
    "txn.client.native",  # the engine in Rust
    "txn.table.changelog",
)

NOT_OURS = ("crc32c", "kio.records")
"""The package is under the LGPL, and kio's records need it."""


@dataclass(frozen=True)
class Import:
    """One module imported by another; both by their full names."""

    importer: str
    imported: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.imported}"


def module_name(path: Path) -> str:
    parts = path.relative_to(PYTHON).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def imports_of(path: Path) -> Iterator[Import]:
    """Every module a file imports, wherever in the file, at run time."""
    importer = module_name(path)
    package = list(path.relative_to(PYTHON).parent.parts)
    for node in runtime_nodes(ast.parse(path.read_text(), str(path))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                # `from txn import _core` names a module; `from txn.errors import X` does not.
                imported = f"{module}.{alias.name}" if is_module(module, alias.name) else module
                yield Import(importer, imported, node.lineno)


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for otherwise in child.orelse:
                yield from runtime_nodes(otherwise)
        else:
            yield from runtime_nodes(child)


def is_module(package: str, name: str) -> bool:
    here = PYTHON.joinpath(*package.split("."), name)
    return any((here.is_dir(), here.with_suffix(".py").exists(), here.with_suffix(".pyi").exists()))


def part_of(module: str) -> str:
    """`partition` of `txn.partition.admission`, `__init__` of `txn`."""
    names = module.split(".")
    return names[1] if len(names) > 1 else "__init__"


FILES = sorted((PYTHON / "txn").rglob("*.py"))


@cache
def imports() -> list[Import]:
    return [found for path in FILES for found in imports_of(path)]


def inside() -> list[Import]:
    """Of modules of txn by modules of txn."""
    return [found for found in imports() if found.imported.split(".")[0] == "txn"]


def points_inward(found: Import) -> bool:
    importer, imported = part_of(found.importer), part_of(found.imported)
    if imported in (importer, "_core"):
        return True
    depth = LAYER_OF[importer]
    return LAYER_OF[imported] < depth or depth == LAYER_OF[imported] == OUTERMOST


def test_every_package_has_a_layer() -> None:
    parts = {part_of(module_name(path)) for path in FILES}
    assert parts - LAYER_OF.keys() == set()


def test_imports_point_inward() -> None:
    assert [str(found) for found in inside() if not points_inward(found)] == []


def test_only_commands_the_console_and_the_manual_import_the_command_line() -> None:
    importers = {part_of(each.importer) for each in inside() if part_of(each.imported) == "cli"}
    assert importers == {"cli", "console", "manual", "__main__"}


def test_administrators_load_no_server() -> None:
    program = (
        "import sys, txn.admin, txn.admin.connecting, txn.cluster.brokers\n"
        "print([n for n in sys.modules if n.startswith(('txn.server', 'txn.broker', 'txn.cli'))])"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


def test_pure_packages_import_nothing_of_the_world() -> None:
    worldly = [
        str(found)
        for found in imports()
        if part_of(found.importer) in PURE and found.imported.split(".")[0] in WORLD
    ]
    assert worldly == []


def test_only_the_shells_import_the_extension() -> None:
    others = [
        str(found)
        for found in inside()
        if part_of(found.imported) == "_core" and not found.importer.startswith(MAY_IMPORT_CORE)
    ]
    assert others == []


def test_only_commands_the_console_and_administrators_import_what_explains() -> None:
    importers = {part_of(each.importer) for each in inside() if part_of(each.imported) == "explain"}
    assert importers == {"explain", "cli", "console", "admin"}


def test_only_the_console_imports_the_packages_of_its_extra() -> None:
    packages = ("starlette", "uvicorn", "jinja2", "markupsafe", "txn.console")
    importers = {found.importer for found in imports() if found.imported.startswith(packages)}
    others = {name for name in importers if part_of(name) != "console"}
    assert others == {"txn.cli.console"}


def test_nothing_imports_what_needs_the_lgpl() -> None:
    assert [str(found) for found in imports() if found.imported.startswith(NOT_OURS)] == []


def test_only_one_module_and_the_schemas_behind_it_import_kio() -> None:
    """Another module that imported it first would have it bring Hypothesis along."""
    importers = {found.importer for found in imports() if found.imported.split(".")[0] == "kio"}
    first = {name for name in importers if not name.startswith("txn.wire.later.")}
    assert first == {"txn.wire.kio"}


def test_only_the_extra_for_it_imports_opentelemetry() -> None:
    importers = {
        part_of(found.importer)
        for found in imports()
        if found.imported.startswith(("opentelemetry", "wrapt", "txn.otel"))
    }
    assert importers == {"otel"}


@pytest.mark.parametrize(
    ("source", "imported"),
    [
        ("import socket", ["socket"]),
        ("def late():\n    import os.path", ["os.path"]),
        ("from txn import _core", ["txn._core"]),
        ("from txn.errors import TxnError", ["txn.errors"]),
        ("from . import admission", ["txn.partition.admission"]),
        ("from ..errors import TxnError", ["txn.errors"]),
        ("if TYPE_CHECKING:\n    import os\nelse:\n    import time", ["time"]),
    ],
)
def test_an_import_is_found_in_every_form(
    source: str, imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "read_text", lambda _: source)
    found = imports_of(PYTHON / "txn" / "partition" / "some_module.py")
    assert [each.imported for each in found] == imported


@pytest.mark.parametrize(
    ("importer", "imported", "allowed"),
    [
        ("txn.broker.node", "txn.partition", True),
        ("txn.partition.admission", "txn.partition.producer_state_entry", True),
        ("txn.partition.admission", "txn.broker.node", False),
        ("txn.partition.admission", "txn.coordinator.group", False),
        ("txn.server.loop.control_loop", "txn", False),
        ("txn.cli.main", "txn.demo.flights", True),
    ],
)
def test_inward_means_a_lower_layer_or_the_same_package(
    importer: str, imported: str, allowed: bool
) -> None:
    assert points_inward(Import(importer, imported, 1)) is allowed
