"""The reference of the public Python names, read from the source.

Nothing is imported: the pages are the same with and without PySpark and OpenTelemetry.
"""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

import txn

MODULES: Final[Mapping[str, str]] = {
    "txn": "The package `txn`",
    "txn.client": "The module `txn.client`",
    "txn.aio": "The module `txn.aio`",
    "txn.admin": "The module `txn.admin`",
    "txn.table": "The module `txn.table`",
    "txn.sql": "The module `txn.sql`",
    "txn.sql.outbox": "The module `txn.sql.outbox`",
    "txn.spark": "The module `txn.spark`",
    "txn.testing": "The module `txn.testing`",
    "txn.testing.plugin": "The fixtures of `txn.testing`",
    "txn.otel": "The module `txn.otel`",
}
"""The public modules, with the titles of their pages."""

_SECTION: Final = re.compile(
    r"^(Attributes|Args|Returns|Raises|Yields):\n((?: +.*\n?|\n)+)", re.MULTILINE
)
_ITEM: Final = re.compile(r"^    (\w[\w.]*): ", re.MULTILINE)

_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def api_pages() -> Mapping[str, str]:
    """Return the Markdown of each page by its name."""
    return {
        f"reference/python/{module.replace('.', '-')}": "\n".join(_module_lines(module, title))
        for module, title in MODULES.items()
    }


def public_names(module: str) -> list[str]:
    """Return the names in `__all__` of a module; without it, its functions with a docstring."""
    tree = _tree(module)
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            names: list[str] = ast.literal_eval(node.value)
            submodules = _submodules(tree, module)
            return [name for name in names if not name.startswith("__") and name not in submodules]
    return [
        node.name for node in tree.body if isinstance(node, ast.FunctionDef) and _is_fixture(node)
    ]


def _submodules(tree: ast.Module, module: str) -> set[str]:
    """The modules of a package that it imports by name; they have pages of their own."""
    return {
        alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == module
        for alias in node.names
    }


def _is_fixture(node: ast.FunctionDef) -> bool:
    return any("fixture" in ast.unparse(each) for each in node.decorator_list)


def _module_lines(module: str, title: str) -> Iterator[str]:
    yield f"# {title}\n"
    yield as_markdown(ast.get_docstring(_tree(module)) or "")
    for name in public_names(module):
        yield f"\n## {name}\n"
        yield from _name_lines(*_definition(module, name), name)


def _definition(module: str, name: str) -> tuple[str, ast.stmt, str]:
    """The module that defines a name, its statement there, and the text below a constant."""
    body = _tree(module).body
    for at, node in enumerate(body):
        if isinstance(node, _Definition) and node.name == name:
            return module, node, ""
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(each, ast.Name) and each.id == name for each in targets):
            return module, node, _text_of(body[at + 1]) if at + 1 < len(body) else ""
    for found in ast.walk(_tree(module)):
        if isinstance(found, ast.ImportFrom) and found.module and not found.level:
            for alias in found.names:
                is_ours = found.module.split(".")[0] == "txn"
                if is_ours and (alias.asname or alias.name) == name:
                    return _definition(found.module, alias.name)
    raise LookupError(f"{module} does not define {name}")


def _text_of(node: ast.stmt) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return str(node.value.value)
    return ""


def _name_lines(module: str, node: ast.stmt, text: str, name: str) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield from _class_lines(module, node, name)
    elif isinstance(node, _Function):
        yield f"```python\n{_signature(node, name)}\n```\n"
        yield as_markdown(ast.get_docstring(node) or "")
    else:
        yield f"```python\n{ast.unparse(node)}\n```\n"
        yield as_markdown(text)


def _class_lines(module: str, node: ast.ClassDef, name: str) -> Iterator[str]:
    parts = dict(_parts(module, node))
    bases = ", ".join(text for base in node.bases if (text := ast.unparse(base)) not in parts)
    yield f"```python\nclass {name}({bases})\n```\n" if bases else f"```python\nclass {name}\n```\n"
    yield as_markdown(ast.get_docstring(node) or "")
    for each in _functions(node, parts.values()):
        if _is_property(each) and not each.name.startswith("_"):
            yield f"\n### {name}.{each.name}\n"
            yield as_markdown(ast.get_docstring(each) or "")
        elif each.name == "__init__" or (
            not each.name.startswith("_") and ast.get_docstring(each) is not None
        ):
            called = name if each.name == "__init__" else f"{name}.{each.name}"
            yield f"\n### {called}()\n" if each.name != "__init__" else ""
            yield f"```python\n{_signature(each, called)}\n```\n"
            yield as_markdown(ast.get_docstring(each) or "")


def _parts(module: str, node: ast.ClassDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """The bases of a class that have no description of their own, and theirs in turn."""
    public = {name for each in MODULES for name in public_names(each)}
    for base in node.bases:
        name = ast.unparse(base)
        if name in public:
            continue
        try:
            of_base, found, _ = _definition(module, name)
        except LookupError:  # a builtin, or a class of another package
            continue
        if isinstance(found, ast.ClassDef):
            yield name, found
            yield from _parts(of_base, found)


def _functions(node: ast.ClassDef, parts: Iterable[ast.ClassDef]) -> Iterator[_Function]:
    known = set()
    for each in (each for one in (node, *parts) for each in one.body):
        if isinstance(each, _Function) and each.name not in known:
            known.add(each.name)
            yield each


def _is_property(node: _Function) -> bool:
    return any(ast.unparse(each).endswith("property") for each in node.decorator_list)


def _signature(node: _Function, name: str) -> str:
    arguments = node.args
    if arguments.args and arguments.args[0].arg in ("self", "cls"):
        arguments = ast.arguments(
            arguments.posonlyargs,
            arguments.args[1:],
            arguments.vararg,
            arguments.kwonlyargs,
            arguments.kw_defaults,
            arguments.kwarg,
            arguments.defaults,
        )
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    line = f"{name}({ast.unparse(arguments)}){returns}"
    if len(line) <= 88:
        return line
    parts = ast.unparse(arguments)
    split = re.split(r", (?=(?:\*{0,2}\w+)(?::|=|,|$))", parts)
    return f"{name}(\n" + "".join(f"    {part},\n" for part in split) + f"){returns}"


def as_markdown(docstring: str) -> str:
    """Return a docstring with its sections as lists."""

    def listed(match: re.Match[str]) -> str:
        body = match[2].rstrip("\n")
        if _ITEM.search(body):
            items = _ITEM.sub(r"- `\1`: ", body)
            return f"**{match[1]}**\n\n{re.sub(r'^ {6,}', '  ', items, flags=re.MULTILINE)}\n\n"
        return f"**{match[1]}** {' '.join(body.split())}\n\n"

    return _SECTION.sub(listed, f"{docstring}\n").rstrip("\n")


@cache
def _tree(module: str) -> ast.Module:
    root = Path(txn.__file__).parent.parent
    place = root.joinpath(*module.split("."))
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))
