"""JSON Schema: does everything that one schema accepts pass another one?

The rules are those of the original, in its names. The original does not look at conditions,
`contains`, `propertyNames` and `patternProperties`. Here a change of them is a reason, because it
is not known to be compatible. So is a required name without a property.
"""

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any, Final

from txn.testing.registry.errors import SchemaError
from txn.testing.registry.json_schema import Node, Schema, same_text
from txn.testing.registry.reasons import Pairs, Reason

UNKNOWN: Final = "NOT_KNOWN_TO_BE_COMPATIBLE"
UPPER: Final = "DECREASED"
LOWER: Final = "INCREASED"


def differences(reader: Schema, writer: Schema) -> list[Reason]:
    """The reasons for which a writer's data may not pass a reader's schema."""
    comparison = _Comparison()
    return comparison.pairs.settle(lambda: comparison.compare(writer.root, reader.root, "#"))


class _Comparison:
    """`old` is the writer's type and `new` the reader's."""

    def __init__(self) -> None:
        self.pairs = Pairs()

    def compare(self, old: Node | None, new: Node | None, path: str) -> list[Reason]:
        if new is None:
            return []
        if old is None:
            return [Reason("SCHEMA_ADDED", path)]
        return self.pairs.of(old, new, lambda: self._compare(old, new, path))

    def _compare(self, old: Node, new: Node, path: str) -> list[Reason]:
        if old is new:
            return []
        if self._is_branch(old, new, path):
            return []
        if old.kind != new.kind:
            is_wider = old.kind == "false" or new.kind == "empty"
            return [] if is_wider else [Reason("TYPE_CHANGED", path, f"{old.kind} to {new.kind}")]
        match old.kind:
            case "string":
                return self._strings(old, new, path)
            case "number":
                return self._numbers(old, new, path)
            case "enum":
                return _enums(old, new, path)
            case "const":
                same = same_text(old.words) == same_text(new.words)
                return [] if same else [Reason("ENUM_ARRAY_CHANGED", f"{path}/const")]
            case "not":
                turned = self.compare(new.inner["not"], old.inner["not"], path)
                return [Reason("NOT_TYPE_EXTENDED", f"{path}/not")] if turned else []
            case "condition":
                return _unless_same(old, new, ("if", "then", "else"), path)
            case "combined":
                return self._combined(old, new, path)
            case "object":
                return self._objects(old, new, path)
            case "array":
                return self._arrays(old, new, path)
        return []

    # ------------------------------------------------------------ several in one

    def _is_branch(self, old: Node, new: Node, path: str) -> bool:
        """Say whether one of the two is a branch of the other, and that suffices."""
        if old.kind != "combined" and new.kind == "combined":
            branches = _branches(new)
            if len(branches) == 1 or new.criterion != "allOf":
                return any(not self.compare(old, each, path) for each in branches)
        if old.kind == "combined" and new.kind != "combined":
            branches = _branches(old)
            if len(branches) == 1 or old.criterion == "allOf":
                return any(not self.compare(each, new, path) for each in branches)
        return False

    def _combined(self, old: Node, new: Node, path: str) -> list[Reason]:
        before, after = _branches(old), _branches(new)
        if old.criterion != new.criterion:
            are_single = len(before) == 1, len(after) == 1
            is_wider = (
                new.criterion == "anyOf"
                or all(are_single)
                or (are_single[0] and new.criterion == "oneOf")
                or (are_single[1] and old.criterion == "allOf")
            )
            if not is_wider:
                return [Reason("COMBINED_TYPE_CHANGED", path)]
        found = []
        if len(before) < len(after) and new.criterion == "allOf":
            found.append(Reason("PRODUCT_TYPE_EXTENDED", path))
        if len(before) > len(after) and old.criterion != "allOf":
            found.append(Reason("SUM_TYPE_NARROWED", path))
        readable = [
            [at for at, to in enumerate(after) if not self.compare(each, to, path)]
            for each in before
        ]
        if _matching(readable) < min(len(before), len(after)):
            found.append(Reason("COMBINED_TYPE_SUBSCHEMAS_CHANGED", path))
        return found

    # ------------------------------------------------------------ texts and numbers

    def _strings(self, old: Node, new: Node, path: str) -> list[Reason]:
        found = [
            *_bound(old, new, "maxLength", UPPER, path),
            *_bound(old, new, "minLength", LOWER, path),
        ]
        before, after = old.words.get("pattern"), new.words.get("pattern")
        if after is not None and before != after:
            kind = "PATTERN_ADDED" if before is None else "PATTERN_CHANGED"
            found.append(Reason(kind, f"{path}/pattern"))
        return found

    def _numbers(self, old: Node, new: Node, path: str) -> list[Reason]:
        found = []
        for word, side in (("maximum", UPPER), ("minimum", LOWER)):
            found += _bound(old, new, word, side, path)
            exclusive = f"exclusive{word.title()}"
            values = [each.words.get(exclusive) for each in (old, new)]
            if any(isinstance(each, bool) for each in values):  # draft 4
                found += _unless_same(old, new, (exclusive,), path)
            else:
                found += _bound(old, new, exclusive, side, path)
        before, after = (each.words.get("multipleOf") for each in (old, new))
        if after is not None:
            if before is None:
                found.append(Reason("MULTIPLE_OF_ADDED", f"{path}/multipleOf"))
            elif not _divides(after, before):
                kind = "EXPANDED" if _divides(before, after) else "CHANGED"
                found.append(Reason(f"MULTIPLE_OF_{kind}", f"{path}/multipleOf"))
        if new.is_integer and not old.is_integer:
            found.append(Reason("TYPE_NARROWED", path))
        return found

    # ------------------------------------------------------------ objects

    def _objects(self, old: Node, new: Node, path: str) -> list[Reason]:
        return [
            *self._required(old, new, f"{path}/required"),
            *self._properties(old, new, f"{path}/properties"),
            *self._dependencies(old, new, f"{path}/dependencies"),
            *self._rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES", path),
            *self._unevaluated(old, new, "unevaluatedProperties", path),
            *_bound(old, new, "maxProperties", UPPER, path),
            *_bound(old, new, "minProperties", LOWER, path),
            *self._patterns(old, new, path),
            *_unless_same(old, new, ("propertyNames",), path),
        ]

    def _patterns(self, old: Node, new: Node, path: str) -> list[Reason]:
        if _is_open(new):
            return []
        is_closed = old.words.get("additionalProperties") is False
        if not is_closed or old.words.get("patternProperties"):
            return _unless_same(old, new, ("patternProperties",), path)
        found: list[Reason] = []  # the old objects have the named properties alone
        for pattern, schema in new.maps.get("patternProperties", {}).items():
            for name, each in _properties(old).items():
                if _fits(pattern, name):
                    found += self.compare(each, schema, f"{path}/patternProperties/{pattern}")
        return found

    def _required(self, old: Node, new: Node, path: str) -> list[Reason]:
        before, after = (_properties(each) for each in (old, new))
        found = []
        for name in sorted(_required(new) - _required(old)):
            is_new = name in after and name not in before  # `_properties` looks at it
            if not is_new and not (name in after and after[name].has_default):
                found.append(Reason("REQUIRED_ATTRIBUTE_ADDED", f"{path}/{name}"))
        return found

    def _properties(self, old: Node, new: Node, path: str) -> list[Reason]:
        before, after = (_properties(each) for each in (old, new))
        found: list[Reason] = []
        for name in sorted(before.keys() | after.keys()):
            place = f"{path}/{name}"
            if name not in after:
                found += self._removed(before[name], new, name, place)
            elif name not in before:
                found += self._added(old, new, after[name], name, place)
            else:
                found += self.compare(before[name], after[name], place)
        return found

    def _removed(self, old: Node, new: Node, name: str, path: str) -> list[Reason]:
        if _is_open(new):
            return []
        rest = _rest_schema(new, name)
        if rest is not None:
            inner = self.compare(old, rest, path)
            kind = "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            return [*inner, Reason(kind, path)] if inner else []
        if old.kind == "false":
            return []
        return [Reason("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", path)]

    def _added(self, old: Node, new: Node, added: Node, name: str, path: str) -> list[Reason]:
        is_required = name in _required(new)
        if _is_open(old):
            if added.kind == "empty" and not is_required:
                return []
            kind = "REQUIRED" if is_required else "OPTIONAL"
            default = "_WITH_DEFAULT" if is_required and added.has_default else ""
            text = f"{kind}_PROPERTY{default}_ADDED_TO_OPEN_CONTENT_MODEL"
            return [Reason(text, path)]
        found: list[Reason] = []
        rest = _rest_schema(old, name)
        if rest is not None:
            inner = self.compare(rest, added, path)
            kind = "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
            found += [*inner, Reason(kind, path)] if inner else []
        if is_required and not added.has_default:
            found.append(Reason("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL", path))
        return found

    def _dependencies(self, old: Node, new: Node, path: str) -> list[Reason]:
        found: list[Reason] = []
        before, after = (_named_dependencies(each) for each in (old, new))
        for name, wanted in sorted(after.items()):
            if name not in before:
                found.append(Reason("DEPENDENCY_ARRAY_ADDED", f"{path}/{name}"))
            elif not wanted <= before[name]:
                is_more = wanted >= before[name]
                kind = "EXTENDED" if is_more else "CHANGED"
                found.append(Reason(f"DEPENDENCY_ARRAY_{kind}", f"{path}/{name}"))
        schemas = [_schema_dependencies(each) for each in (old, new)]
        for name, schema in sorted(schemas[1].items()):
            if name not in schemas[0]:
                found.append(Reason("DEPENDENCY_SCHEMA_ADDED", f"{path}/{name}"))
            else:
                found += self.compare(schemas[0][name], schema, f"{path}/{name}")
        return found

    def _rest(self, old: Node, new: Node, word: str, kind: str, path: str) -> list[Reason]:
        """Compare additionalProperties or additionalItems."""
        place = f"{path}/{word}"
        permits = [each.words.get(word) is not False for each in (old, new)]
        schemas = [each.inner.get(word) for each in (old, new)]
        if permits[0] != permits[1]:
            return [] if permits[1] else [Reason(f"{kind}_REMOVED", place)]
        if schemas[0] is None and schemas[1] is not None:
            return [Reason(f"{kind}_NARROWED", place)]
        return self.compare(schemas[0], schemas[1], place) if schemas[0] is not None else []

    def _unevaluated(self, old: Node, new: Node, word: str, path: str) -> list[Reason]:
        before, after = old.inner.get(word), new.inner.get(word)
        if after is None or after.kind == "empty" or (before and before.kind == "false"):
            return []
        kind = re.sub(r"(?=[A-Z])", "_", word).upper()
        if before is None or before.kind == "empty" or after.kind == "false":
            side = "REMOVED" if after.kind == "false" else "NARROWED"
            return [Reason(f"{kind}_{side}", f"{path}/{word}")]
        return self.compare(before, after, f"{path}/{word}")

    # ------------------------------------------------------------ arrays

    def _arrays(self, old: Node, new: Node, path: str) -> list[Reason]:
        found = [
            *self.compare(old.inner.get("items"), new.inner.get("items"), f"{path}/items"),
            *self._tuples(old, new, f"{path}/items"),
            *self._rest(old, new, "additionalItems", "ADDITIONAL_ITEMS", path),
            *self._unevaluated(old, new, "unevaluatedItems", path),
            *_unless_same(old, new, ("contains",), path),
        ]
        for word, side in (
            *(("maxItems", UPPER), ("minItems", LOWER)),
            *(("maxContains", UPPER), ("minContains", LOWER)),
        ):
            found += _bound(old, new, word, side, path)
        if new.words.get("uniqueItems") is True and old.words.get("uniqueItems") is not True:
            found.append(Reason("UNIQUE_ITEMS_ADDED", f"{path}/uniqueItems"))
        return found

    def _tuples(self, old: Node, new: Node, path: str) -> list[Reason]:
        before, after = (each.lists.get("items", []) for each in (old, new))
        found: list[Reason] = []
        for at in range(max(len(before), len(after))):
            place = f"{path}/{at}"
            if at >= len(after):
                rest = _rest_item(new)
                if rest is not None and (inner := self.compare(before[at], rest, place)):
                    kind = "ITEM_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                    found += [*inner, Reason(kind, place)]
                elif _is_closed_array(new) and before[at].kind != "false":
                    found.append(Reason("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", place))
            elif at >= len(before):
                rest = _rest_item(old)
                if rest is not None:
                    if inner := self.compare(rest, after[at], place):
                        kind = "ITEM_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"
                        found += [*inner, Reason(kind, place)]
                elif not _is_closed_array(old) and after[at].kind != "empty":
                    found.append(Reason("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", place))
            else:
                found += self.compare(before[at], after[at], place)
        return found


# ---------------------------------------------------------------- the parts of a type


def _branches(node: Node) -> list[Node]:
    return node.lists[node.criterion]


def _properties(node: Node) -> dict[str, Node]:
    return node.maps.get("properties", {})


def _required(node: Node) -> set[str]:
    return set(node.words.get("required", ()))


def _is_open(node: Node) -> bool:
    """Any other property may have any value."""
    rest = node.inner.get("unevaluatedProperties")
    return (
        node.words.get("additionalProperties", True) is True
        and not node.words.get("patternProperties")
        and (rest is None or rest.kind == "empty")
    )


def _rest_schema(node: Node, name: str) -> Node | None:
    """The type that a property without one of its own has to be of."""
    for pattern, each in node.maps.get("patternProperties", {}).items():
        if _fits(pattern, name):
            return each
    rest = node.inner.get("additionalProperties")
    if rest is not None:
        return rest
    if node.words.get("additionalProperties", True) is True:
        uneval = node.inner.get("unevaluatedProperties")
        if uneval is not None and uneval.kind not in ("false", "empty"):
            return uneval
    return None


def _fits(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        raise SchemaError(f"the pattern {pattern!r} is not read here") from None


def _rest_item(node: Node) -> Node | None:
    rest = node.inner.get("additionalItems")
    if rest is None and node.words.get("additionalItems", True) is True:
        uneval = node.inner.get("unevaluatedItems")
        return uneval if uneval is not None and uneval.kind not in ("false", "empty") else None
    return rest


def _is_closed_array(node: Node) -> bool:
    uneval = node.inner.get("unevaluatedItems")
    is_closed = node.words.get("additionalItems", True) is False
    return is_closed or (uneval is not None and uneval.kind == "false")


def _named_dependencies(node: Node) -> dict[str, set[str]]:
    found = {**node.words.get("dependencies", {}), **node.words.get("dependentRequired", {})}
    return {name: set(map(str, at)) for name, at in found.items() if isinstance(at, list)}


def _schema_dependencies(node: Node) -> dict[str, Node]:
    return {**node.maps.get("dependencies", {}), **node.maps.get("dependentSchemas", {})}


# ---------------------------------------------------------------- single keywords


def _bound(old: Node, new: Node, word: str, side: str, path: str) -> list[Reason]:
    before, after = old.words.get(word), new.words.get(word)
    if after is None or before == after:
        return []
    kind = re.sub(r"(?=[A-Z])", "_", word).upper()
    if before is None:
        return [Reason(f"{kind}_ADDED", f"{path}/{word}")]
    is_narrower = after < before if side == UPPER else after > before
    return [Reason(f"{kind}_{side}", f"{path}/{word}")] if is_narrower else []


def _enums(old: Node, new: Node, path: str) -> list[Reason]:
    before, after = ({same_text(at) for at in each.words["enum"]} for each in (old, new))
    if before <= after:
        return []
    kind = "NARROWED" if after <= before else "CHANGED"
    return [Reason(f"ENUM_ARRAY_{kind}", f"{path}/enum")]


def _unless_same(old: Node, new: Node, words: Sequence[str], path: str) -> list[Reason]:
    return [
        Reason(UNKNOWN, f"{path}/{word}", f"{word} has changed")
        for word in words
        if same_text(old.words.get(word)) != same_text(new.words.get(word))
    ]


def _divides(divisor: Any, number: Any) -> bool:
    divided = Decimal(str(number)) / Decimal(str(divisor))
    return divided == divided.to_integral_value()


def _matching(readable: Sequence[Sequence[int]]) -> int:
    """The most pairs of an old and a new branch, each in one pair at most."""
    taken: dict[int, int] = {}

    def place(at: int, tried: set[int]) -> bool:
        for to in readable[at]:
            if to not in tried:
                tried.add(to)
                if to not in taken or place(taken[to], tried):
                    taken[to] = at
                    return True
        return False

    return sum(place(at, set()) for at in range(len(readable)))
