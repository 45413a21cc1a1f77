"""JSON Schemas, read into a tree of types with a meaning of their own each.

The drafts 4, 6, 7, 2019-09 and 2020-12 are read by the keywords that they share. As the library of
the original does, a schema with several parts, such as `type` beside `enum`, becomes an `allOf`.
`$ref` leads into the same text, or into a reference by its name or `$id`.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urldefrag, urljoin

from txn.testing.registry.errors import SchemaError

DEPTH_MAX: Final = 100
TYPES: Final = ("object", "array", "string", "number", "integer", "boolean", "null")
OBJECT_WORDS: Final = (
    *("properties", "required", "additionalProperties", "patternProperties", "dependencies"),
    *("minProperties", "maxProperties", "propertyNames", "unevaluatedProperties"),
    *("dependentRequired", "dependentSchemas"),
)
ARRAY_WORDS: Final = (
    *("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains"),
    *("prefixItems", "unevaluatedItems", "minContains", "maxContains"),
)
NUMBER_WORDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
STRING_WORDS: Final = ("minLength", "maxLength", "pattern")
COMBINED_WORDS: Final = ("allOf", "anyOf", "oneOf")
CONDITION_WORDS: Final = ("if", "then", "else")
WORDS_OF: Final = (
    ("object", OBJECT_WORDS),
    ("array", ARRAY_WORDS),
    ("number", NUMBER_WORDS),
    ("string", STRING_WORDS),
)
INNER: Final = (
    *("additionalProperties", "propertyNames", "unevaluatedProperties", "items"),
    *("additionalItems", "contains", "unevaluatedItems"),
)
INNER_MAPS: Final = ("properties", "patternProperties", "dependencies", "dependentSchemas")
COUNTS: Final = (
    *("minProperties", "maxProperties", "minItems", "maxItems", "minLength", "maxLength"),
    *("minContains", "maxContains"),
)


@dataclass(slots=True)
class Node:
    """A type of a schema.

    Attributes:
        kind: "empty", "false", "object", "array", "string", "number", "boolean", "null", "enum",
            "const", "not", "condition" or "combined".
        words: The keywords of its kind and their values.
        inner: The types below it, by keyword.
        maps: The types below it by keyword and name.
        lists: The types below it, in order, by keyword.
        criterion: "allOf", "anyOf" or "oneOf" of a combined type.
        is_integer: Of a number.
        has_default: The schema has a default.
    """

    kind: str
    words: Mapping[str, Any] = field(default_factory=dict)
    inner: "dict[str, Node]" = field(default_factory=dict)
    maps: "dict[str, dict[str, Node]]" = field(default_factory=dict)
    lists: "dict[str, list[Node]]" = field(default_factory=dict)
    criterion: str = ""
    is_integer: bool = False
    has_default: bool = False


class Schema:
    """A JSON Schema.

    Args:
        text: The schema.
        references: The name and text of each schema that it uses.

    Raises:
        SchemaError: one of them is no schema, or a `$ref` leads nowhere.
    """

    def __init__(self, text: str, references: Iterable[tuple[str, str]] = ()) -> None:
        self.value = loaded(text)
        documents = {name: loaded(each) for name, each in references}
        self.root = _Reader(self.value, documents).read_document("")

    @property
    def canonical(self) -> str:
        """The text without white space."""
        return json.dumps(self.value, separators=(",", ":"), ensure_ascii=False)

    @property
    def normalized(self) -> str:
        """The text without white space, its keys in alphabetical order."""
        return same_text(self.value)


def same_text(value: object) -> str:
    """A text that equal JSON values share."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def loaded(text: str) -> Any:
    """The JSON value of a text. Raises SchemaError: it is none."""

    def no_constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    try:
        value = json.loads(text, parse_constant=no_constant)
        json.dumps(value, allow_nan=False)  # a number beyond the doubles became an infinity
    except RecursionError:
        raise SchemaError("it is nested too deeply") from None
    except ValueError as error:
        raise SchemaError(f"it is no JSON: {error}") from None
    if not isinstance(value, dict | bool):
        raise SchemaError("a JSON Schema is an object or a boolean")
    return value


class _Reader:
    """Reads documents, and each place of them once, so that a schema may contain itself."""

    def __init__(self, root: Any, documents: Mapping[str, Any]) -> None:
        self._documents: dict[str, Any] = {"": root, **documents}
        for name, each in list(self._documents.items()):
            own = _id_of(each)
            if own:
                self._documents.setdefault(own, each)
                self._documents.setdefault(urljoin(own, name), each)
        self._read: dict[int, Node] = {}

    def read_document(self, name: str) -> Node:
        return self._node(self._documents[name], name, 0)

    def _node(self, found: Any, document: str, depth: int) -> Node:
        if depth > DEPTH_MAX:
            raise SchemaError(f"it is nested more than {DEPTH_MAX} deep")
        if found is True:
            return Node("empty")
        if found is False:
            return Node("false")
        if not isinstance(found, dict):
            raise SchemaError(f"no schema: {str(found)[:80]}")
        if id(found) in self._read:
            return self._read[id(found)]
        if "$ref" in found:
            return self._referred(found, document, depth)
        unknown = [word for word in ("$dynamicRef", "$recursiveRef") if word in found]
        if unknown:
            raise SchemaError(f"this registry does not read {unknown[0]}")
        made = Node("empty", has_default="default" in found)
        self._read[id(found)] = made  # it may come again below itself
        parts = list(self._parts(found, document, depth))
        if len(parts) == 1:
            [only] = parts
            for name in ("kind", "words", "inner", "maps", "lists", "criterion", "is_integer"):
                setattr(made, name, getattr(only, name))
        elif parts:
            made.kind, made.criterion, made.lists = "combined", "allOf", {"allOf": parts}
        return made

    def _referred(self, found: dict[str, Any], document: str, depth: int) -> Node:
        ref = found["$ref"]
        if not isinstance(ref, str):
            raise SchemaError("a $ref is a text")
        seen: set[int] = set()
        target, at = self._target(ref, document)
        while isinstance(target, dict) and "$ref" in target:
            if id(target) in seen or not isinstance(target["$ref"], str):
                raise SchemaError(f"$ref {ref!r} leads to itself")
            seen.add(id(target))
            target, at = self._target(target["$ref"], at)
        return self._node(target, at, depth + 1)

    def _target(self, ref: str, document: str) -> tuple[Any, str]:
        address, fragment = urldefrag(ref)
        base = _id_of(self._documents[document]) or document
        names = (address, urljoin(base, address)) if address else (document,)
        name = next((each for each in names if each in self._documents), None)
        if name is None:
            raise SchemaError(f"unresolved $ref {ref!r}")
        target = self._documents[name]
        if fragment and not fragment.startswith("/"):
            target = _anchored(target, fragment)
        for step in fragment.split("/")[1:] if fragment.startswith("/") else ():
            key = unquote(step).replace("~1", "/").replace("~0", "~")
            if isinstance(target, list) and key.isdecimal() and int(key) < len(target):
                target = target[int(key)]
            elif isinstance(target, dict) and key in target:
                target = target[key]
            else:
                target = None
        if not isinstance(target, dict | bool):
            raise SchemaError(f"unresolved $ref {ref!r}")
        return target, name

    def _parts(self, found: dict[str, Any], document: str, depth: int) -> Iterable[Node]:
        _check_values(found)

        def read(each: Any) -> Node:
            return self._node(each, document, depth + 1)

        if "enum" in found:
            if not isinstance(found["enum"], list):
                raise SchemaError("enum is a list")
            yield Node("enum", {"enum": found["enum"]})
        if "const" in found:
            yield Node("const", {"const": found["const"]})
        if "not" in found:
            yield Node("not", inner={"not": read(found["not"])})
        for word in COMBINED_WORDS:
            if word in found:
                listed = {same_text(at): at for at in _schemas(found, word)}.values()
                yield Node("combined", criterion=word, lists={word: [read(at) for at in listed]})
        if any(word in found for word in CONDITION_WORDS):
            words: dict[str, Any] = {word: found[word] for word in CONDITION_WORDS if word in found}
            for each in words.values():
                read(each)
            yield Node("condition", words)
        if "type" in found:
            types = found["type"] if isinstance(found["type"], list) else [found["type"]]
            if not all(each in TYPES for each in types) or len(set(types)) < len(types):
                raise SchemaError(f"type is one of {', '.join(TYPES)}, or a list of them")
            nodes = [self._typed(each, found, read) for each in types]
            if isinstance(found["type"], list):
                yield Node("combined", criterion="anyOf", lists={"anyOf": nodes})
            else:
                yield from nodes
        else:
            for kind, words_of in WORDS_OF:
                if any(word in found for word in words_of):
                    yield self._typed(kind, found, read)

    def _typed(self, type: str, found: dict[str, Any], read: Callable[[Any], Node]) -> Node:
        kind = "number" if type == "integer" else type
        words_of = dict(WORDS_OF).get(kind, ())
        words = {word: found[word] for word in words_of if word in found}
        made = Node(kind, words, is_integer=type == "integer")
        for word, value in words.items():
            if word in INNER_MAPS:
                if not isinstance(value, dict):
                    raise SchemaError(f"{word} is an object")
                made.maps[word] = {
                    name: read(each)
                    for name, each in value.items()
                    if word != "dependencies" or not isinstance(each, list)
                }
            elif word == "prefixItems" or (word == "items" and isinstance(value, list)):
                made.lists["items"] = [read(each) for each in _schemas(found, word)]
            elif word == "required":
                if not isinstance(value, list) or not all(isinstance(at, str) for at in value):
                    raise SchemaError("required is a list of names")
            elif word == "dependentRequired":
                if not isinstance(value, dict) or not all(map(_is_list, value.values())):
                    raise SchemaError("dependentRequired is an object of lists")
            elif word in INNER and not isinstance(value, bool):
                made.inner[word] = read(value)
            elif value is False and word in ("unevaluatedProperties", "unevaluatedItems"):
                made.inner[word] = Node("false")
        if kind == "array" and "prefixItems" in words and "items" in words:
            # Since 2020-12 `items` is for those behind `prefixItems`, as additionalItems was.
            made.words = {**words, "additionalItems": words["items"]}
            if "items" in made.inner:
                made.inner["additionalItems"] = made.inner.pop("items")
        elif kind == "array" and words.get("items") is False:
            made.inner["items"] = Node("false")
        return made


def _id_of(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    found = document.get("$id", document.get("id", ""))
    return urldefrag(found)[0] if isinstance(found, str) else ""


def _anchored(document: Any, name: str) -> Any:
    """The schema of a document with an anchor; None if no schema has it."""
    left = [document]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            if each.get("$anchor") == name or each.get("$id", each.get("id")) == f"#{name}":
                return each
            left += each.values()
        elif isinstance(each, list):
            left += each
    return None


def _schemas(found: Mapping[str, Any], word: str) -> list[Any]:
    listed = found[word]
    if not isinstance(listed, list):
        raise SchemaError(f"{word} is a list of schemas")
    return listed


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _check_values(found: Mapping[str, Any]) -> None:
    for word in COUNTS:
        value = found.get(word, 0)
        if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
            raise SchemaError(f"{word} is a number from 0")
    for word in NUMBER_WORDS:
        value = found.get(word, 1)
        may_be_bool = word.startswith("exclusive")
        if not isinstance(value, int | float) or (isinstance(value, bool) and not may_be_bool):
            raise SchemaError(f"{word} is a number")
    if found.get("multipleOf", 1) <= 0:
        raise SchemaError("multipleOf is above 0")
    if not isinstance(found.get("pattern", ""), str):
        raise SchemaError("pattern is a text")
