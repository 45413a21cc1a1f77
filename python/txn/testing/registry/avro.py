"""Avro schemas: read, checked and written as the specification has them.

A schema that was read is written again as Java's library writes it. So texts
that differ in white space alone are one schema. Source: the specification of Avro 1.12.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from txn.testing.registry.errors import SchemaError

DEPTH_MAX: Final = 100
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
NAMED: Final = ("record", "enum", "fixed")
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ORDERS: Final = ("ascending", "descending", "ignore")

_OF_FIELD: Final = ("name", "type", "doc", "default", "order", "aliases")
_OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "record": ("type", "name", "namespace", "doc", "fields", "aliases"),
    "enum": ("type", "name", "namespace", "doc", "symbols", "default", "aliases"),
    "fixed": ("type", "name", "namespace", "doc", "size", "aliases"),
    "array": ("type", "items"),
    "map": ("type", "values"),
}

NO_DEFAULT: Final = object()


@dataclass(slots=True)
class Type:
    """A type of a schema; which attributes it has depends on its kind.

    Attributes:
        kind: A primitive type, "record", "enum", "fixed", "array", "map" or "union".
        name: The full name of a named type.
        aliases: Other full names.
        fields: Of a record.
        symbols: Of an enum.
        default: The symbol that an enum reads an unknown one as.
        size: Of a fixed, in bytes.
        items: The type of the elements of an array or a map.
        branches: Of a union.
        doc: Its description.
        props: Attributes that the specification leaves free.
    """

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    fields: "tuple[Field, ...]" = ()
    symbols: tuple[str, ...] = ()
    default: str | None = None
    size: int = 0
    items: "Type | None" = None
    branches: "tuple[Type, ...]" = ()
    doc: str | None = None
    props: Mapping[str, Any] = field(default_factory=dict)

    @property
    def short_name(self) -> str:
        """The name without its namespace."""
        return self.name.rpartition(".")[2]

    @property
    def namespace(self) -> str:
        """The namespace of its name; "" is none."""
        return self.name.rpartition(".")[0]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record."""

    name: str
    type: Type
    aliases: tuple[str, ...]
    default: object
    order: str
    doc: str | None
    props: Mapping[str, Any]


class Schema:
    """An Avro schema.

    Args:
        text: The schema.
        references: The texts of the schemas that it uses; each one may use those before it.

    Raises:
        SchemaError: one of them is no schema.
    """

    def __init__(self, text: str, references: Iterable[str] = ()) -> None:
        self._names: dict[str, Type] = {}
        for each in references:
            _Reader(self._names).read(_loaded(each), "", 0)
        self._known = frozenset(self._names)
        self.root = _Reader(self._names).read(_loaded(text), "", 0)

    @property
    def canonical(self) -> str:
        """The text as Java's library writes it."""
        return _compact(_Writer(self._known, is_sorted=False).write(self.root, ""))

    @property
    def normalized(self) -> str:
        """The text with the free attributes in alphabetical order, too."""
        return _compact(_Writer(self._known, is_sorted=True).write(self.root, ""))


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except ValueError as error:
        if NAME.fullmatch(text.strip()):  # the bare name of a primitive type is accepted, too
            return text.strip()
        raise SchemaError(f"it is no JSON: {error}") from None


def _compact(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


class _Reader:
    def __init__(self, names: dict[str, Type]) -> None:
        self._names = names

    def read(self, found: Any, namespace: str, depth: int) -> Type:
        if depth > DEPTH_MAX:
            raise SchemaError(f"it is nested more than {DEPTH_MAX} deep")
        match found:
            case str():
                return self._named(found, namespace)
            case list():
                return self._union(found, namespace, depth)
            case {"type": str(kind)} if kind in _OF_TYPE or kind == "error":
                return self._defined("record" if kind == "error" else kind, found, namespace, depth)
            case {"type": str(kind)}:
                known = self._named(kind, namespace)
                props = {key: at for key, at in found.items() if key != "type"}
                is_primitive = known.kind in PRIMITIVES
                return Type(known.kind, props=props) if is_primitive and props else known
            case {"type": (dict() | list()) as inner}:
                return self.read(inner, namespace, depth + 1)
        raise SchemaError(f"no type: {_shown(found)}")

    def _named(self, name: str, namespace: str) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        for full in (_full(name, namespace), name):
            if full in self._names:
                return self._names[full]
        raise SchemaError(f"undefined name: {_shown(name)}")

    def _union(self, found: list[object], namespace: str, depth: int) -> Type:
        branches = tuple(self.read(each, namespace, depth + 1) for each in found)
        seen = set()
        for each in branches:
            if each.kind == "union":
                raise SchemaError("a union in a union")
            key = each.name or each.kind
            if key in seen:
                raise SchemaError(f"a union has two branches {_shown(key)}")
            seen.add(key)
        return Type("union", branches=branches)

    def _defined(self, kind: str, found: dict[str, Any], namespace: str, depth: int) -> Type:
        props = {key: at for key, at in found.items() if key not in _OF_TYPE[kind]}
        made = Type(kind, props=props)
        if kind in NAMED:
            self._name(made, found, namespace)
        match kind:
            case "record":
                fields = _list(found, "fields", made)
                made.fields = tuple(self._field(each, made.namespace, depth) for each in fields)
                _require_distinct([each.name for each in made.fields], "field", made)
            case "enum":
                made.symbols = tuple(_list(found, "symbols", made))
                _require_names(made.symbols, "symbol", made)
                _require_distinct(made.symbols, "symbol", made)
                if "default" in found and found["default"] not in made.symbols:
                    raise SchemaError(f"the default of enum {made.name} is none of its symbols")
                made.default = found.get("default")
            case "fixed":
                size = found.get("size")
                if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size < 1 << 31:
                    raise SchemaError(f"fixed {made.name} has no size")
                made.size = size
            case _:
                items = "items" if kind == "array" else "values"
                if items not in found:
                    raise SchemaError(f"{kind} without {items}")
                made.items = self.read(found[items], namespace, depth + 1)
        return made

    def _name(self, made: Type, found: Mapping[str, Any], namespace: str) -> None:
        name, space = found.get("name"), found.get("namespace", namespace)
        if not isinstance(name, str) or not isinstance(space, str):
            raise SchemaError(f"{made.kind} without a name: {_shown(found)}")
        made.name = _full(name, space)
        _require_names(made.name.split("."), "name", made)
        if made.short_name in PRIMITIVES and not made.namespace:
            raise SchemaError(f"{made.name} is the name of a primitive type")
        if made.name in self._names:
            raise SchemaError(f"{made.name} is defined twice")
        made.doc = _text(found, "doc", made)
        made.aliases = tuple(_full(each, made.namespace) for each in _aliases(found, made))
        self._names[made.name] = made

    def _field(self, found: object, namespace: str, depth: int) -> Field:
        if not isinstance(found, dict) or not isinstance(found.get("name"), str):
            raise SchemaError(f"a field without a name: {_shown(found)}")
        if "type" not in found:
            raise SchemaError(f"field {_shown(found['name'])} has no type")
        type = self.read(found["type"], namespace, depth + 1)
        owner = Type("field", found["name"])
        _require_names([owner.name], "name", owner)
        if found.get("order", ORDERS[0]) not in ORDERS:
            raise SchemaError(f"field {owner.name} has no such order")
        default = found.get("default", NO_DEFAULT)
        if default is not NO_DEFAULT and not fits(type, default):
            raise SchemaError(f"the default of field {owner.name} is no {type.kind}")
        return Field(
            name=owner.name,
            type=type,
            aliases=tuple(_aliases(found, owner)),
            default=default,
            order=found.get("order", ORDERS[0]),
            doc=_text(found, "doc", owner),
            props={key: at for key, at in found.items() if key not in _OF_FIELD},
        )


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _list(found: Mapping[str, Any], key: str, owner: Type) -> list[Any]:
    listed = found.get(key)
    if not isinstance(listed, list):
        raise SchemaError(f"{owner.kind} {owner.name} has no list of {key}")
    return listed


def _aliases(found: Mapping[str, Any], owner: Type) -> list[str]:
    aliases = found.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(each, str) for each in aliases):
        raise SchemaError(f"the aliases of {owner.kind} {owner.name} are no list of names")
    return aliases


def _text(found: Mapping[str, Any], key: str, owner: Type) -> str | None:
    text = found.get(key)
    if text is not None and not isinstance(text, str):
        raise SchemaError(f"{key} of {owner.kind} {owner.name} is no text")
    return text


def _require_names(names: Iterable[object], what: str, owner: Type) -> None:
    for each in names:
        if not isinstance(each, str) or not NAME.fullmatch(each):
            raise SchemaError(f"{_shown(each)} is no {what} for {owner.kind} {_shown(owner.name)}")


def _require_distinct(names: Iterable[str], what: str, owner: Type) -> None:
    seen = set()
    for each in names:
        if each in seen:
            raise SchemaError(f"{owner.kind} {owner.name} has {what} {each} twice")
        seen.add(each)


def _shown(value: object) -> str:
    return str(value)[:80]


def _is_int(bits: int) -> Callable[[object], bool]:
    limit = 1 << (bits - 1)
    return lambda at: isinstance(at, int) and not isinstance(at, bool) and -limit <= at < limit


def _is_number(value: object) -> bool:
    is_special = value in ("NaN", "Infinity", "-Infinity") if isinstance(value, str) else False
    return is_special or (isinstance(value, int | float) and not isinstance(value, bool))


_FITS: Final[Mapping[str, Callable[[object], bool]]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "int": _is_int(32),
    "long": _is_int(64),
    "float": _is_number,
    "double": _is_number,
    "bytes": lambda value: isinstance(value, str),
    "string": lambda value: isinstance(value, str),
}


def fits(type: Type, value: object) -> bool:
    """Say whether a JSON value is a default for a type."""
    if type.kind in _FITS:
        return _FITS[type.kind](value)
    match type.kind, value:
        case "enum", str():
            return value in type.symbols
        case "fixed", str():
            return len(value) == type.size
        case "array", list():
            assert type.items is not None, "an array has items"
            return all(fits(type.items, each) for each in value)
        case "map", dict():
            assert type.items is not None, "a map has values"
            return all(fits(type.items, each) for each in value.values())
        case "union", _:
            return any(fits(each, value) for each in type.branches)
        case "record", dict():
            return all(
                fits(each.type, value[each.name])
                if each.name in value
                else each.default is not NO_DEFAULT
                for each in type.fields
            )
    return False


class _Writer:
    """Writes each named type where it comes first, and its name later."""

    def __init__(self, known: Iterable[str], *, is_sorted: bool) -> None:
        self._known = set(known)
        self._is_sorted = is_sorted

    def write(self, type: Type, namespace: str) -> object:
        if type.kind == "union":
            return [self.write(each, namespace) for each in type.branches]
        if type.kind in PRIMITIVES:
            return {"type": type.kind, **self._props(type.props)} if type.props else type.kind
        if type.name in self._known:
            is_near = type.namespace == namespace
            return type.short_name if is_near else type.name
        made: dict[str, object] = {"type": type.kind}
        if type.kind in NAMED:
            self._known.add(type.name)
            made["name"] = type.short_name
            if type.namespace != namespace:
                made["namespace"] = type.namespace
            if type.doc is not None:
                made["doc"] = type.doc
        match type.kind:
            case "record":
                made["fields"] = [self._field(each, type.namespace) for each in type.fields]
            case "enum":
                made["symbols"] = list(type.symbols)
                if type.default is not None:
                    made["default"] = type.default
            case "fixed":
                made["size"] = type.size
            case _:
                assert type.items is not None, "an array and a map have a type of elements"
                key = "items" if type.kind == "array" else "values"
                made[key] = self.write(type.items, namespace)
        made |= self._props(type.props)
        if type.aliases:
            made["aliases"] = [
                each.rpartition(".")[2] if each.rpartition(".")[0] == type.namespace else each
                for each in type.aliases
            ]
        return made

    def _field(self, field: Field, namespace: str) -> dict[str, object]:
        made: dict[str, object] = {"name": field.name, "type": self.write(field.type, namespace)}
        if field.doc is not None:
            made["doc"] = field.doc
        if field.default is not NO_DEFAULT:
            made["default"] = field.default
        if field.order != ORDERS[0]:
            made["order"] = field.order
        if field.aliases:
            made["aliases"] = list(field.aliases)
        return made | self._props(field.props)

    def _props(self, props: Mapping[str, Any]) -> dict[str, Any]:
        return dict(sorted(props.items())) if self._is_sorted else dict(props)
