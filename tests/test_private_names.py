"""Tests reach txn by its public names; the exceptions are listed and may only become fewer.

A private name that a test reaches can no longer be changed by the package that owns it.
`txn.server.lifecycle.broker.service_of` gives the running parts of a `txn.Broker`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
TXN = TESTS.parent / "python" / "txn"

PRIVATE = re.compile(r"_[a-zA-Z]\w*")
OTHERS = {"KafkaError", "asyncio.Handle", "self", "cls"}
"""Owners of names that are not txn's."""

PUBLIC_OF_STD = {"_fields", "_field_defaults", "_replace", "_asdict", "_make", "_core"}

REACHED = {
    # Faults at a line inside of a function: no caller can be there.
    "api/cli/test_explain.py": {"_send", "_version"},
    "crash/test_truncation.py": {"_limit_checkpoints"},
    "unit/test_native_storage.py": {"_open"},
    "interop/test_producer_api.py": {"_handle", "_offsets"},
    "damage/test_hostile_directories.py": {"_handle"},
    "api/client/test_unreachable.py": {"_reach"},
    "spark/test_driver.py": {"_pause"},
    # Values that nothing else shows.
    "api/embedded/test_forks.py": {"_REMOVALS"},
    "api/directories/test_private_files.py": {"_workplace"},
    "model/test_client_interrupts.py": {"_ahead"},
    "model/test_partition_model.py": {"_producers"},
    "spark/test_data_loss.py": {"_settings"},
    "spark/test_options.py": {"_ignored"},
    "unit/test_client_errors.py": {"_ahead"},
    "unit/test_metadata.py": {"_flat_names"},
    "unit/test_request_bodies.py": {"_parts_of_request"},
}


SELF = ("self", "cls")


def test_tests_reach_no_private_name_of_txn_but_the_listed_ones() -> None:
    owned = {name for tree in trees(TXN).values() for name in defined_in(tree)} - PUBLIC_OF_STD
    tests = trees(TESTS)
    own: dict[Path, set[str]] = {path.parent: set() for path in tests}
    for path, tree in tests.items():
        own[path.parent] |= set(defined_in(tree))
    found = {
        str(path.relative_to(TESTS)): names
        for path, tree in tests.items()
        if (names := {name for name in reached_by(tree) if name in owned - own[path.parent]})
    }
    assert found == REACHED


def trees(root: Path) -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}


def defined_in(tree: ast.Module) -> Iterator[str]:
    """The private names that a module gives to functions, classes, variables and attributes."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                names = [name]
            case ast.ClassDef(name=name) | ast.Name(id=name, ctx=ast.Store()):
                names = [name]
            case ast.Attribute(attr=name, value=ast.Name(id=owner), ctx=ast.Store()):
                names = [name] if owner in SELF else []
            case _:
                continue
        yield from filter(PRIVATE.fullmatch, names)


def reached_by(tree: ast.Module) -> Iterator[str]:
    """The private names that a test reads of other objects than its own, imports or replaces."""
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=str(name), value=owner) if (
                PRIVATE.match(name) and ast.unparse(owner) not in OTHERS
            ):
                names = [name]
            case ast.ImportFrom(module=str(module), names=aliases) if module.startswith("txn"):
                names = [alias.name for alias in aliases]
            case ast.Call(
                func=ast.Attribute(attr="setattr" | "object"),
                args=[owner, ast.Constant(value=str(name)), *_],
            ) if ast.unparse(owner) not in OTHERS:
                names = [name]
            case ast.Constant(value=str(text)) if re.fullmatch(r"txn(\.\w+)+", text):
                names = [text.rpartition(".")[2]]
            case _:
                continue
        yield from filter(PRIVATE.fullmatch, names)
