"""Files of a Rust crate that name each other in a circle are three at most.

A change of one file of a circle needs a look at all of them. The names are read from the source:
those of `use`, and paths that begin with `crate` or `super`. Comments, tests within a file and the
crate's own list of modules, `lib.rs`, do not count.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

RUST: Final = Path(__file__).parent.parent / "rust"
FILES_MAX: Final = 3

USE: Final = re.compile(r"\buse\s+([^;]+);")
PATH: Final = re.compile(r"\b(?:crate|super)(?:::\w+)+")
LINE_COMMENT: Final = re.compile(r"//[^\n]*")
TESTS: Final = re.compile(r"#\[cfg\(test\)\]\nmod tests \{.*", re.DOTALL)

Module = tuple[str, ...]


def code(path: Path) -> str:
    return TESTS.sub("", LINE_COMMENT.sub("", path.read_text()))


def modules_of(crate: str) -> dict[Module, str]:
    """The code of each module of a crate."""
    source = RUST / crate / "src"
    found = {}
    for path in source.rglob("*.rs"):
        parts = path.relative_to(source).with_suffix("").parts
        found[parts[:-1] if parts[-1] == "mod" else parts] = code(path)
    return found


def expanded(tree: str) -> Iterator[str]:
    """Yield the paths of a `use`, such as `a::{b, c::{d, e}}`."""
    before, brace, rest = tree.partition("{")
    if not brace:
        yield re.sub(r"\s+as\s+\w+|\s", "", tree)
        return
    part, depth = "", 0
    for char in rest.rpartition("}")[0] + ",":
        if char == "," and depth == 0:
            if part.strip():
                yield from expanded(before + part)
            part = ""
        else:
            depth += (char == "{") - (char == "}")
            part += char


def named(module: Module, text: str, modules: dict[Module, str]) -> set[Module]:
    """The other modules that a module's code names."""
    paths = {path for use in USE.findall(text) for path in expanded(use)} | set(PATH.findall(text))
    found = set()
    for path in paths:
        first, *rest = path.split("::")
        if first == "crate":
            parts: Module = tuple(rest)
        elif first == "super":
            levels = 1 + rest.count("super")
            parts = (*module[:-levels], *rest[levels - 1 :])
        else:
            parts = (*module, first, *rest)
            if parts[: len(module) + 1] not in modules:
                continue  # of another crate, or a name of this file
        lengths = range(len(parts), 0, -1)
        found.update([parts[:n] for n in lengths if parts[:n] in modules][:1])
    return found - {module}


def circles(uses: dict[Module, set[Module]]) -> set[frozenset[Module]]:
    """The largest sets of modules that reach each other."""

    def reached(start: Module) -> set[Module]:
        seen: set[Module] = set()
        waiting = [start]
        while waiting:
            for other in uses[waiting.pop()] - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    reach = {module: reached(module) for module in uses}
    return {
        frozenset(other for other in reach[module] if module in reach[other])
        for module in uses
        if module in reach[module]
    }


@pytest.mark.parametrize("crate", ["txn-log", "txn-net"])
def test_files_that_name_each_other_in_a_circle_are_three_at_most(crate: str) -> None:
    modules = modules_of(crate)
    del modules[("lib",)]
    uses = {module: named(module, text, modules) for module, text in modules.items()}
    assert sum(map(len, uses.values())) > len(uses), "the source is not read as it is written"
    large = [sorted("::".join(one) for one in each) for each in circles(uses)]
    assert not [each for each in large if len(each) > FILES_MAX]


def test_a_circle_is_found_through_nested_names_and_modules_above() -> None:
    modules = {
        ("a",): "use crate::{b::{self, B}, std};",
        ("b",): "mod inner;",
        ("b", "inner"): "fn f(_: super::super::c::C) {}",
        ("c",): "use crate::a::A as Other;",
    }
    uses = {module: named(module, text, modules) for module, text in modules.items()}
    uses["b",] |= {("b", "inner")}
    assert circles(uses) == {frozenset(modules)}
