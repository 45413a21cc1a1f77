"""Schema resolution of Avro: can a reader's schema read everything that a writer's may write?

Source: the specification of Avro 1.12, "Schema Resolution". As in Java's library, named types match
by their short names, or by an alias of the reader. Logical types are not compared.
"""

from collections.abc import Mapping
from typing import Final

from txn.testing.registry.avro import NAMED, NO_DEFAULT, PRIMITIVES, Schema, Type
from txn.testing.registry.reasons import Pairs, Reason

PROMOTED: Final[Mapping[str, frozenset[str]]] = {
    "long": frozenset({"int"}),
    "float": frozenset({"int", "long"}),
    "double": frozenset({"int", "long", "float"}),
    "bytes": frozenset({"string"}),
    "string": frozenset({"bytes"}),
}
"""The types that a reader's type reads besides itself."""


def differences(reader: Schema, writer: Schema) -> list[Reason]:
    """The reasons for which a reader cannot read a writer's data; none if it can."""
    resolution = _Resolution()
    return resolution.pairs.settle(lambda: resolution.compare(reader.root, writer.root, ""))


class _Resolution:
    def __init__(self) -> None:
        self.pairs = Pairs()

    def compare(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        return self.pairs.of(reader, writer, lambda: self._compare(reader, writer, path))

    def _compare(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        if writer.kind == "union":
            return self._of_union(reader, writer, path)
        if reader.kind == "union":
            if any(not self._alone(each, writer) for each in reader.branches):
                return []
            text = f"the reader's union has no branch for {_named(writer)}"
            return [Reason("MISSING_UNION_BRANCH", path or "/", text)]
        if reader.kind != writer.kind:
            if writer.kind in PROMOTED.get(reader.kind, ()):
                return []
            text = f"the reader's {reader.kind} does not read the writer's {writer.kind}"
            return [Reason("TYPE_MISMATCH", path or "/", text)]
        if reader.kind in PRIMITIVES:
            return []
        found = self._of_names(reader, writer, path) if reader.kind in NAMED else []
        match reader.kind:
            case "record":
                found += self._of_fields(reader, writer, path)
            case "enum":
                missing = [each for each in writer.symbols if each not in reader.symbols]
                if missing and reader.default is None:
                    text = f"the reader's {reader.name} lacks {', '.join(missing)} and a default"
                    found.append(Reason("MISSING_ENUM_SYMBOLS", f"{path}/symbols", text))
            case "fixed":
                if reader.size != writer.size:
                    text = f"the reader has {reader.size} bytes, the writer {writer.size}"
                    found.append(Reason("FIXED_SIZE_MISMATCH", f"{path}/size", text))
            case _:
                assert reader.items is not None, "an array and a map have elements"
                assert writer.items is not None, "an array and a map have elements"
                inner = "items" if reader.kind == "array" else "values"
                found += self.compare(reader.items, writer.items, f"{path}/{inner}")
        return found

    def _of_union(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        found: list[Reason] = []
        for at, branch in enumerate(writer.branches):
            if not self._alone(reader, branch):
                continue
            if reader.kind == "union":
                text = f"the reader's union has no branch for {_named(branch)}"
                found.append(Reason("MISSING_UNION_BRANCH", f"{path}/{at}", text))
            else:
                found += self.compare(reader, branch, f"{path}/{at}")
        return found

    def _alone(self, reader: Type, writer: Type) -> list[Reason]:
        return self.compare(reader, writer, "")

    def _of_names(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        if reader.short_name == writer.short_name or writer.name in reader.aliases:
            return []
        text = f"the reader expects {reader.name}, and the writer has {writer.name}"
        return [Reason("NAME_MISMATCH", f"{path}/name", text)]

    def _of_fields(self, reader: Type, writer: Type, path: str) -> list[Reason]:
        written = {each.name: each for each in writer.fields}
        found: list[Reason] = []
        for at, field in enumerate(reader.fields):
            names = (field.name, *field.aliases)
            match = next((written[name] for name in names if name in written), None)
            place = f"{path}/fields/{at}"
            if match is not None:
                found += self.compare(field.type, match.type, f"{place}/type")
            elif field.default is NO_DEFAULT:
                text = f"the writer has no field {field.name}, and the reader has no default for it"
                found.append(Reason("READER_FIELD_MISSING_DEFAULT_VALUE", place, text))
        return found


def _named(type: Type) -> str:
    return type.name or type.kind
