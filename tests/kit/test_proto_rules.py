"""Protobuf, as a table: does a new schema read the messages of an old one?

The verdicts follow from "Updating A Message Type" of Protobuf's language guides. A removed message
and a field that leaves its oneof are refused, as by the original registry.
"""

from base64 import b64encode

import pytest
from google.protobuf import descriptor_pb2

from txn.testing.registry import proto_rules, protobuf
from txn.testing.registry.errors import SchemaError

THREE, TWO = 'syntax = "proto3";', 'syntax = "proto2";'


def three(body: str) -> str:
    return f"{THREE} message M {{ {body} }}"


def two(body: str) -> str:
    return f"{TWO} message M {{ {body} }}"


NESTED = "N n = 1; message N { %s }"
RECURSIVE = "M m = 1; %s v = 2;"

COMPATIBLE = [
    (three("int32 a = 1;"), three("int32 a = 1; string b = 2;")),
    (three("int32 a = 1; string b = 2;"), three("int32 a = 1;")),
    (three("int32 a = 1;"), three("int32 b = 1;")),
    (three("int32 a = 1;"), three("uint64 a = 1;")),
    (three("int64 a = 1;"), three("bool a = 1;")),
    (three("sint32 a = 1;"), three("sint64 a = 1;")),
    (three("fixed32 a = 1;"), three("sfixed32 a = 1;")),
    (three("string a = 1;"), three("bytes a = 1;")),
    (three("string a = 1;"), three("repeated string a = 1;")),
    (three("int32 a = 1;"), three("optional int32 a = 1;")),
    (three("int32 e = 1;"), three("E e = 1; enum E { A = 0; }")),
    (three("enum E { A = 0; } E e = 1;"), three("enum E { A = 0; B = 1; } E e = 1;")),
    (three("enum E { A = 0; B = 1; } E e = 1;"), three("enum E { A = 0; C = 1; } E e = 1;")),
    (three("int32 a = 1;"), three("oneof o { int32 a = 1; }")),
    (three("oneof o { int32 a = 1; }"), three("oneof o { int32 a = 1; string b = 2; }")),
    (three("oneof o { int32 a = 1; string b = 2; }"), three("int32 a = 1; string b = 2;")),
    (three("oneof o { int32 a = 1; }"), three("oneof p { int32 a = 1; }")),
    (three("optional int32 a = 1;"), three("oneof o { int32 a = 1; }")),
    (
        three("map<string, int32> a = 1;"),
        three("map<bytes_, int64> a = 1;".replace("bytes_", "string")),
    ),
    (three(NESTED % "int32 a = 1;"), three(NESTED % "int64 a = 1; int32 b = 2;")),
    (three("N n = 1; message N {}"), three("repeated N n = 1; message N {}")),
    (three(RECURSIVE % "int32"), three(RECURSIVE % "int64")),
    (three(""), f"{THREE} message L {{}} message M {{}}"),
    (two("required int32 a = 1;"), two("required int64 a = 1;")),
    (two("optional string a = 1;"), two("repeated string a = 1;")),
]
NOT_COMPATIBLE = [
    (three("int32 a = 1;"), three("string a = 1;")),
    (three("int32 a = 1;"), three("sint32 a = 1;")),
    (three("int32 a = 1;"), three("fixed32 a = 1;")),
    (three("float a = 1;"), three("double a = 1;")),
    (three("int32 a = 1;"), three("repeated int32 a = 1;")),
    (three("N n = 1; message N {}"), three("string n = 1; message N {}")),
    (three("N n = 1; message N {} message O {}"), three("O n = 1; message N {} message O {}")),
    (three(NESTED % "int32 a = 1;"), three(NESTED % "string a = 1;")),
    (three(RECURSIVE % "int32"), three(RECURSIVE % "string")),
    (three("map<string, int32> a = 1;"), three("map<string, string> a = 1;")),
    (three("map<string, int32> a = 1;"), three("repeated N a = 1; message N {}")),
    (three("int32 a = 1; int32 b = 2;"), three("oneof o { int32 a = 1; int32 b = 2; }")),
    (
        three("oneof o { int32 a = 1; } int32 b = 2;"),
        three("oneof o { int32 a = 1; int32 b = 2; }"),
    ),
    (three("oneof o { int32 a = 1; int32 b = 2; }"), three("oneof o { int32 a = 1; }")),
    (f"{THREE} message L {{}} message M {{}}", three("")),
    (three("message N {}"), three("")),
    (f"{THREE} package a; message M {{}}", f"{THREE} package b; message M {{}}"),
    (two("optional int32 a = 1;"), two("optional int32 a = 1; required int32 b = 2;")),
    (two("required int32 a = 1; optional int32 b = 2;"), two("optional int32 b = 2;")),
    (two("optional int32 a = 1;"), two("required int32 a = 1;")),
    (two("optional string a = 1;"), two("required string a = 1;")),
]


@pytest.mark.parametrize(("old", "new"), COMPATIBLE)
def test_a_schema_reads_the_old_messages(old: str, new: str) -> None:
    assert proto_rules.differences(protobuf.Schema(new), protobuf.Schema(old)) == []


@pytest.mark.parametrize(("old", "new"), NOT_COMPATIBLE)
def test_a_schema_does_not_read_the_old_messages(old: str, new: str) -> None:
    assert proto_rules.differences(protobuf.Schema(new), protobuf.Schema(old))


def test_a_type_of_another_file_is_compared_too() -> None:
    text = 'syntax = "proto3"; import "n.proto"; message M { x.N n = 1; }'
    files = [f"{THREE} package x; message N {{ {each} a = 1; }}" for each in ("int32", "string")]
    old, new = (protobuf.Schema(text, [("n.proto", each)]) for each in files)
    assert [each.kind for each in proto_rules.differences(new, old)] == [
        "FIELD_NAMED_TYPE_CHANGED",
        "FIELD_SCALAR_KIND_CHANGED",
    ]


@pytest.mark.parametrize(
    "text",
    [
        *("nothing", "message M {", "message {}", 'syntax = "proto4";', 'edition = "2023";'),
        *(three("int32 a = 0;"), three("int32 a = 1"), three("int32 a = 536870912;")),
        *(three("int32 a = 1; int32 b = 1;"), three("int32 a = 1; int32 a = 2;")),
        *(three("Missing a = 1;"), three("required int32 a = 1;"), two("int32 a = 1;")),
        *(three("map<float, int32> a = 1;"), two("optional group G = 1 {}"), three("oneof o {}")),
        *(f'{THREE} import "missing.proto";', f'{THREE} import "google/protobuf/no.proto";'),
        *(f"{THREE} enum E {{ A = 1; }}", three("reserved 1; int32 a = 1;"), three("int32 = 1;")),
        *(three("int32 a = 09;"), three("int32 a = 1 [deprecated = 7];"), "\x00", "service S }"),
        "".join(f"message M{at} {{" for at in range(200)) + "}" * 200,
        *("AAAA", b64encode(b"\xff" * 40).decode()),
    ],
)
def test_a_text_that_breaks_the_specification_is_no_schema(text: str) -> None:
    with pytest.raises(SchemaError):
        protobuf.Schema(text)


WHOLE = """\
syntax = "proto3";
package a.b;

import "google/protobuf/timestamp.proto";
option java_package = "x\\"y";

message M {
  option deprecated = true;
  reserved 5;
  reserved 7 to 9;
  reserved 100 to max;
  reserved "old";
  optional int32 opt = 1 [json_name = "Q", deprecated = true];
  repeated .a.b.M many = 2 [packed = false];
  map<string, .a.b.M.In> by_name = 3;
  oneof pick {
    string s = 4;
    .google.protobuf.Timestamp t = 6;
  }
  message In {
    .a.b.M.In.E e = 1;
    enum E {
      A = 0;
      B = -1;
    }
  }
}

enum Top {
  option allow_alias = true;
  reserved -5 to -2;
  reserved "N";
  Z = 0;
  Y = 0 [deprecated = true];
}
"""


def test_a_schema_is_written_from_its_descriptor() -> None:
    short = WHOLE.replace("\n", " ").replace(".a.b.", "").replace(" .google", " google")
    serialized = protobuf.Schema(f"/* a */ {short} // b").formatted("serialized")
    assert serialized is not None
    for text in (WHOLE, short, serialized):
        assert protobuf.Schema(text).canonical == WHOLE


def test_a_schema_with_other_parts_stays_as_it_was_given() -> None:
    text = f"{THREE} message M {{ int32 a = 1 [(b.c).d = {{ e: [1] }}, deprecated = true]; }}"
    for more in (text, f"{text} service S {{ rpc A (M) returns (M) {{}} }}"):
        schema = protobuf.Schema(f"\n{more} ")
        assert schema.canonical == more
        assert schema.file.message_types_by_name["M"].fields_by_name["a"].number == 1
    made = descriptor_pb2.FileDescriptorProto(name="x.proto", syntax="proto3")
    made.options.ParseFromString(b"\xa2\x3f\x01a")  # an option that nobody knows here
    given = b64encode(made.SerializeToString()).decode()
    assert protobuf.Schema(given).canonical == given
