"""Reads the text of a `.proto` file into a FileDescriptorProto.

The syntaxes proto2 and proto3 are read. Services, extensions and options with names in parentheses
are passed over, and `Parsed.is_whole` says so. Groups and editions are refused. The types of fields
stay names: a descriptor pool resolves and checks them.

Source: the language specifications of proto2 and proto3.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import descriptor_pb2

from txn.testing.registry.errors import SchemaError

DEPTH_MAX: Final = 30
"""Message types in each other; protobuf's own runtimes read 100 levels of a descriptor."""

NUMBER_MAX: Final = (1 << 29) - 1
ENUM_MAX: Final = (1 << 31) - 1

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
    |(?P<number>0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)
    |(?P<sign>[-+=;:,.<>(){}\[\]/])""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ESCAPES: Final = dict(zip("nrtabfv", "\n\r\t\a\b\f\v", strict=True))
_Field: Final = descriptor_pb2.FieldDescriptorProto
SCALARS: Final[Mapping[str, int]] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _Field.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
LABELS: Final = {
    "optional": _Field.LABEL_OPTIONAL,
    "required": _Field.LABEL_REQUIRED,
    "repeated": _Field.LABEL_REPEATED,
}


@dataclass(frozen=True, slots=True)
class Parsed:
    """A file, and whether the descriptor has everything that the text has."""

    file: Any
    is_whole: bool


def parse(text: str) -> Parsed:
    """Read a text. Raises SchemaError: it is no file of proto2 or proto3."""
    parser = _Parser(text)
    parser.file_body()
    return Parsed(parser.file, parser.is_whole)


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0
        self.is_whole = True
        self.file = descriptor_pb2.FileDescriptorProto()

    # ------------------------------------------------------------ tokens

    @property
    def _next(self) -> str:
        return self._tokens[self._at][1]

    @property
    def _kind(self) -> str:
        return self._tokens[self._at][0]

    def _take(self) -> str:
        kind, token = self._tokens[self._at]
        if kind == "end":
            raise SchemaError("the text ends too early")
        self._at += 1
        return token

    def _accept(self, token: str) -> bool:
        if self._next != token or self._kind == "text":
            return False
        self._at += 1
        return True

    def _expect(self, token: str) -> None:
        if not self._accept(token):
            raise SchemaError(f"expected {token!r} before {self._next[:40]!r}")

    def _name(self, *, dotted: bool = False) -> str:
        kind, token = self._kind, self._take()
        if kind != "name" or ("." in token and not dotted):
            raise SchemaError(f"expected a name, not {token[:40]!r}")
        return token

    def _text(self) -> str:
        if self._kind != "text":
            raise SchemaError(f"expected a text, not {self._next[:40]!r}")
        parts = []
        while self._kind == "text":
            parts.append(_unescaped(self._take()))
        return "".join(parts)

    def _number(self, least: int = 0, most: int = NUMBER_MAX) -> int:
        is_negative = self._accept("-")
        token = self._take()
        if not re.fullmatch(r"0[xX][0-9a-fA-F]{1,8}|\d{1,11}", token):
            raise SchemaError(f"expected a number, not {token[:40]!r}")
        base = 16 if token[:2].lower() == "0x" else 8 if token[0] == "0" and len(token) > 1 else 10
        try:
            value = int(token, base) * (-1 if is_negative else 1)
        except ValueError:
            raise SchemaError(f"{token} is no number") from None
        if not least <= value <= most:
            raise SchemaError(f"{value} is not between {least} and {most}")
        return value

    def _skip_value(self) -> None:
        """Pass over a value, or a block in braces."""
        depth = 0
        while True:
            if depth == 0 and self._next in (";", ",", "]") and self._kind != "text":
                return
            token = self._take() if self._kind != "text" else (self._take(), "")[1]
            depth += (token in ("{", "[", "<")) - (token in ("}", "]", ">"))
            if depth == 0 and token in ("}", ">"):
                return
            if depth < 0:
                raise SchemaError(f"unexpected {token!r}")

    # ------------------------------------------------------------ the file

    def file_body(self) -> None:
        self.file.syntax = "proto2"
        while self._kind != "end":
            if self._accept(";"):
                continue
            word = self._name()
            match word:
                case "syntax":
                    self._expect("=")
                    self.file.syntax = self._text()
                    if self.file.syntax not in ("proto2", "proto3"):
                        raise SchemaError(f"syntax {self.file.syntax[:40]!r} is not read here")
                    self._expect(";")
                case "package":
                    self.file.package = self._name(dotted=True)
                    self._expect(";")
                case "import":
                    self._import()
                case "option":
                    self._option(self.file.options)
                    self._expect(";")
                case "message":
                    self._message(self.file.message_type.add(), 0)
                case "enum":
                    self._enum(self.file.enum_type.add())
                case "service" | "extend":
                    self._skip_block()
                case _:
                    raise SchemaError(f"{word[:40]!r} begins no part of a file")

    def _import(self) -> None:
        kind = next((each for each in ("public", "weak") if self._accept(each)), "")
        if kind == "public":
            self.file.public_dependency.append(len(self.file.dependency))
        elif kind:
            self.file.weak_dependency.append(len(self.file.dependency))
        self.file.dependency.append(self._text())
        self._expect(";")

    def _skip_block(self) -> None:
        self.is_whole = False
        self._name(dotted=True)
        if self._next != "{":
            raise SchemaError(f"expected '{{' before {self._next[:40]!r}")
        self._skip_value()

    # ------------------------------------------------------------ messages

    def _message(self, made: Any, depth: int) -> None:
        if depth > DEPTH_MAX:
            raise SchemaError(f"messages are nested more than {DEPTH_MAX} deep")
        made.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            ahead = self._tokens[self._at + 1][1]
            match self._next if self._kind == "name" else "":
                case "message" if ahead not in (".", "="):
                    self._take()
                    self._message(made.nested_type.add(), depth + 1)
                case "enum" if ahead not in (".", "="):
                    self._take()
                    self._enum(made.enum_type.add())
                case "option":
                    self._take()
                    self._option(made.options)
                    self._expect(";")
                case "oneof":
                    self._take()
                    self._oneof(made)
                case "reserved":
                    self._take()
                    self._reserved(made, NUMBER_MAX, made.DESCRIPTOR.name)
                case "extensions":
                    self._take()
                    self.is_whole = False
                    self._skip_to_semicolon()
                case "extend":
                    self._take()
                    self._skip_block()
                case "map" if ahead == "<":
                    self._map(made)
                case _:
                    self._field(made, None)
        for field in made.field:
            is_reserved = any(each.start <= field.number < each.end for each in made.reserved_range)
            if is_reserved or field.name in made.reserved_name:
                raise SchemaError(f"field {field.name} of {made.name} is reserved")
            if field.proto3_optional:  # behind the oneofs of the text, as protoc has it
                field.oneof_index = len(made.oneof_decl)
                made.oneof_decl.add().name = f"_{field.name}"

    def _field(self, made: Any, oneof: int | None) -> None:
        is_proto3 = self.file.syntax == "proto3"
        label = self._next if self._next in LABELS and self._kind == "name" else None
        if label is not None:
            self._take()
        if oneof is not None and label is not None:
            raise SchemaError("a field of a oneof has no label")
        if label is None and oneof is None and not is_proto3:
            raise SchemaError("a field of proto2 has a label")
        if label == "required" and is_proto3:
            raise SchemaError("proto3 has no required fields")
        type = self._name(dotted=True)
        if type == "group":
            raise SchemaError("groups are not read here")
        field = made.field.add()
        self._typed(field, type)
        field.name = self._name()
        field.label = LABELS.get(label or "optional", _Field.LABEL_OPTIONAL)
        self._numbered(field)
        if oneof is not None:
            field.oneof_index = oneof
        elif label == "optional" and is_proto3:
            field.proto3_optional = True

    def _typed(self, field: Any, type: str) -> None:
        if type in SCALARS:
            field.type = SCALARS[type]
        else:
            field.type_name = type

    def _numbered(self, field: Any) -> None:
        self._expect("=")
        field.number = self._number(1)
        if self._accept("["):
            while True:
                self._field_option(field)
                if not self._accept(","):
                    break
            self._expect("]")
        self._expect(";")

    def _map(self, made: Any) -> None:
        self._take()
        self._expect("<")
        key_type = self._name()
        self._expect(",")
        value_type = self._name(dotted=True)
        self._expect(">")
        field = made.field.add()
        field.name = self._name()
        field.label = _Field.LABEL_REPEATED
        self._numbered(field)
        entry = made.nested_type.add()
        entry.name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_"))
        entry.name += "Entry"
        entry.options.map_entry = True
        field.type_name = entry.name
        field.type = _Field.TYPE_MESSAGE
        if key_type not in SCALARS or key_type in ("float", "double", "bytes"):
            raise SchemaError(f"{key_type} is no type of a map's key")
        for name, number, type in (("key", 1, key_type), ("value", 2, value_type)):
            part = entry.field.add()
            part.name, part.number, part.label = name, number, _Field.LABEL_OPTIONAL
            self._typed(part, type)

    def _oneof(self, made: Any) -> None:
        number = len(made.oneof_decl)
        oneof = made.oneof_decl.add()
        oneof.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._next == "option" and self._tokens[self._at + 2][1] == "=":
                self._take()
                self._option(oneof.options)
                self._expect(";")
            else:
                self._field(made, number)

    def _reserved(self, made: Any, most: int, owner: str) -> None:
        is_enum = owner == "EnumDescriptorProto"
        while True:
            if self._kind == "text":
                made.reserved_name.append(self._text())
            else:
                least = -ENUM_MAX - 1 if is_enum else 1
                start = end = self._number(least, most)
                if self._accept("to"):
                    end = most if self._accept("max") else self._number(start, most)
                made.reserved_range.add(start=start, end=end if is_enum else end + 1)
            if not self._accept(","):
                break
        self._expect(";")

    def _skip_to_semicolon(self) -> None:
        while not self._accept(";"):
            self._take()

    # ------------------------------------------------------------ enums and options

    def _enum(self, made: Any) -> None:
        made.name = self._name()
        self._expect("{")
        while not self._accept("}"):
            if self._accept(";"):
                continue
            if self._next == "option":
                self._take()
                self._option(made.options)
                self._expect(";")
            elif self._next == "reserved":
                self._take()
                self._reserved(made, ENUM_MAX, made.DESCRIPTOR.name)
            else:
                value = made.value.add()
                value.name = self._name()
                self._expect("=")
                value.number = self._number(-ENUM_MAX - 1, ENUM_MAX)
                if self._accept("["):
                    while True:
                        self._option(value.options)
                        if not self._accept(","):
                            break
                    self._expect("]")
                self._expect(";")

    def _field_option(self, field: Any) -> None:
        if self._next in ("default", "json_name") and self._tokens[self._at + 1][1] == "=":
            word = self._take()
            self._expect("=")
            if word == "json_name":
                field.json_name = self._text()
            elif self._kind == "text":
                field.default_value = self._text()
            else:
                sign = "-" if self._accept("-") else ""
                field.default_value = sign + self._take()
        else:
            self._option(field.options)

    def _option(self, options: Any) -> None:
        """Set an option that the descriptor knows; pass over another."""
        if self._accept("("):
            self._name(dotted=True)
            self._expect(")")
            while self._kind == "name" or self._next == ".":
                self._take()
            name = ""
        else:
            name = self._name(dotted=True)
        self._expect("=")
        known = options.DESCRIPTOR.fields_by_name.get(name)
        if known is None or known.message_type is not None or known.is_repeated:
            self.is_whole = False
            self._skip_value()
            return
        try:
            setattr(options, name, self._option_value(known))
        except (TypeError, ValueError, KeyError):
            raise SchemaError(f"option {name} does not have such a value") from None

    def _option_value(self, known: Any) -> object:
        if self._kind == "text":
            return self._text()
        token = self._take()
        if known.enum_type is not None:
            return known.enum_type.values_by_name[token].number
        return {"true": True, "false": False}[token]


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise SchemaError(f"no .proto file: {text[at : at + 40]!r}")
        at = match.end()
        if match.lastgroup is not None:
            found.append((match.lastgroup, match[0]))
    return [*found, ("end", ""), ("end", ""), ("end", "")]


def _unescaped(token: str) -> str:
    def plain(match: re.Match[str]) -> str:
        found = match[1]
        if found[0] == "x" and len(found) > 1:
            return chr(int(found[1:], 16))
        if found[0] in "01234567":
            return chr(int(found, 8) & 0xFF)
        return _ESCAPES.get(found, found)

    return _ESCAPE.sub(plain, token[1:-1])
