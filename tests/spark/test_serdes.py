"""Columns in the framing of a schema registry, decoded and encoded in a query of real Spark."""

import datetime
import json
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    message_factory,
    timestamp_pb2,
)
from pyspark.errors import PythonException
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

import txn
from txn.errors import ConfigError, RejectedError, RetriableError
from txn.spark import from_registry, to_registry
from txn.testing import SchemaRegistry, TestBroker
from txn.testing.registry import proto_text

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"),
]

CONTEXT = SerializationContext("orders", MessageField.VALUE)
NOON = datetime.datetime(2026, 11, 27, 12, 0, 0, 5_000)

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "item", "type": "string"},
        {"name": "count", "type": ["null", "int"], "default": None},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        },
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "sizes", "type": {"type": "map", "values": "long"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "other", "type": ["null", "Kind"]},
    ],
}
VALUE: dict[str, Any] = {
    "item": "fig",
    "count": 3,
    "price": Decimal("1.50"),
    "at": NOON.replace(tzinfo=datetime.UTC),
    "tags": ["x", "y"],
    "sizes": {"l": 1 << 40},
    "kind": "B",
    "other": None,
}


@pytest.fixture(scope="module")
def broker() -> Iterator[TestBroker]:
    with TestBroker() as broker:
        yield broker


@pytest.fixture(scope="module")
def registry(broker: TestBroker) -> SchemaRegistry:
    return broker.schema_registry()


@pytest.fixture(scope="module")
def client(registry: SchemaRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as client:
        yield client


def rows(spark: SparkSession, *values: bytes | None) -> Any:
    return spark.createDataFrame([(value,) for value in values], "value binary")


def decoded(spark: SparkSession, column: Any, *values: bytes | None) -> list[Any]:
    return [row.v for row in rows(spark, *values).select(column.alias("v")).collect()]


def test_avro_becomes_a_struct_and_bytes_again(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    value = AvroSerializer(client, json.dumps(ORDER))(VALUE, CONTEXT)
    column = from_registry("value", registry.url, "orders-value")
    frame = rows(spark, value, None).select(column.alias("order"))
    assert frame.schema.simpleString() == (
        "struct<order:struct<item:string,count:int,price:decimal(6,2),at:timestamp,"
        "tags:array<string>,sizes:map<string,bigint>,kind:string,other:string>>"
    )
    back = frame.select("order", to_registry("order", registry.url, "orders-value").alias("value"))
    first, second = back.collect()
    assert (second.order, second.value) == (None, None)
    assert first.order.asDict() == {**VALUE, "at": NOON}
    assert bytes(first.value) == value
    assert AvroDeserializer(client)(bytes(first.value), CONTEXT) == VALUE


def test_records_of_older_schemas_have_the_type_of_the_column(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    old = '{"type":"record","name":"E","fields":[{"name":"a","type":"int"}]}'
    new = (
        '{"type":"record","name":"E","fields":[{"name":"b","type":"string","default":"x"},'
        '{"name":"a","type":"long"}]}'
    )
    context = SerializationContext("evolved", MessageField.VALUE)
    before = AvroSerializer(client, old)({"a": 1}, context)
    after = AvroSerializer(client, new)({"a": 2, "b": "y"}, context)
    latest = from_registry("value", registry.url, "evolved-value")
    assert decoded(spark, latest, before, after) == [Row(b="x", a=1), Row(b="y", a=2)]
    first = from_registry("value", registry.url, "evolved-value", version=1, mode="permissive")
    assert decoded(spark, first, before, after) == [Row(a=1), None]  # no int holds a long


def test_a_schema_of_avro_may_use_others(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    money = '{"type":"record","name":"Money","namespace":"m","fields":[{"name":"n","type":"int"}]}'
    client.register_schema("money", Schema(money, "AVRO"))
    text = '{"type":"record","name":"P","fields":[{"name":"price","type":"m.Money"}]}'
    schema = Schema(text, "AVRO", [SchemaReference("m.Money", "money", 1)])
    context = SerializationContext("prices", MessageField.VALUE)
    value = AvroSerializer(client, schema)({"price": {"n": 7}}, context)
    column = from_registry("value", registry.url, "prices-value")
    assert decoded(spark, column, value) == [Row(price=Row(n=7))]


def test_json_becomes_a_struct_and_bytes_again(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    schema = {
        "title": "Order",
        "type": "object",
        "required": ["item"],
        "properties": {
            "item": {"type": "string"},
            "count": {"type": ["integer", "null"]},
            "price": {"$ref": "#/definitions/price"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
            "any": {},
        },
        "definitions": {"price": {"type": "number"}},
    }
    value = {"item": "fig", "price": 1.5, "tags": ["x"], "sizes": {"l": 2}, "any": [1, {"a": None}]}
    context = SerializationContext("json", MessageField.VALUE)
    written = JSONSerializer(json.dumps(schema), client)(value, context)
    column = from_registry("value", registry.url, "json-value")
    frame = rows(spark, written).select(column.alias("v"))
    assert frame.schema.simpleString() == (
        "struct<v:struct<item:string,count:bigint,price:double,tags:array<string>,"
        "sizes:map<string,bigint>,any:string>>"
    )
    back = frame.select("v", to_registry("v", registry.url, "json-value").alias("value"))
    [row] = back.collect()
    assert row.v.asDict() == {**value, "count": None, "any": '[1, {"a": null}]'}
    read = JSONDeserializer(json.dumps(schema), schema_registry_client=client)
    assert read(bytes(row.value), context) == value


PRICE = """syntax = "proto3"; package p; import "money.proto";
    import "google/protobuf/timestamp.proto"; message Other {}
    message Outer { message Price {
        m.Money money = 1; optional int32 n = 2; repeated string tags = 3;
        map<string, m.Money> by = 4;
        google.protobuf.Timestamp at = 5; E e = 6; uint64 big = 7; bytes raw = 8; int32 zero = 9;
        oneof o { string s = 10; bool b = 11; } } }
    enum E { A = 0; B = 1; }"""


def message_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    known = descriptor_pb2.FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(known)
    pool.Add(known)
    money = 'syntax = "proto3"; package m; message Money { int64 n = 1; }'
    for path, text in (("money.proto", money), ("price.proto", PRICE)):
        made = proto_text.parse(text).file
        made.name = path
        pool.Add(made)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Outer.Price"))


def test_protobuf_becomes_a_struct_and_bytes_again(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    made = message_class()
    context = SerializationContext("proto", MessageField.VALUE)
    message = made(money={"n": 7}, tags=["x"], e=1, big=(1 << 64) - 1, raw=b"\xff", b=False)
    message.by["l"].n = 3
    message.at.FromDatetime(NOON)
    written = ProtobufSerializer(made, client)(message, context)
    column = from_registry("value", registry.url, "proto-value", message="p.Outer.Price")
    frame = rows(spark, written).select(column.alias("v"))
    encoded = to_registry("v", registry.url, "proto-value", message="p.Outer.Price")
    [row] = frame.select("v", encoded.alias("value")).collect()
    assert row.v.asDict(recursive=True) == {
        "money": {"n": 7},
        "n": None,
        "tags": ["x"],
        "by": {"l": {"n": 3}},
        "at": NOON,
        "e": "B",
        "big": Decimal((1 << 64) - 1),
        "raw": b"\xff",
        "zero": 0,
        "s": None,
        "b": False,
    }
    read = ProtobufDeserializer(made, schema_registry_client=client)
    assert read(bytes(row.value), context) == message
    wrong = from_registry("value", registry.url, "proto-value", mode="PERMISSIVE")
    assert decoded(spark, wrong, written) == [None]  # the first message is another one


def test_bad_rows_end_the_query_or_are_null(
    spark: SparkSession, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    text = '{"type":"record","name":"S","fields":[{"name":"a","type":"string"}]}'
    number = client.register_schema("bad", Schema(text, "AVRO"))
    other = client.register_schema("json-bad", Schema('{"type":"object"}', "JSON"))
    good = struct.pack(">bi", 0, number) + b"\x02x"
    bad = [
        *(b"", b"\0", b"plain text", b"\1" + good[1:]),
        *(good[:-1], good + b"more", good[:5] + b"\xff" * 20, good[:5] + b"\x02\xff"),
        *(struct.pack(">bi", 0, 99_999) + b"\x02x", struct.pack(">bi", 0, other) + b"\x02x"),
    ]
    permissive = from_registry("value", registry.url, "bad", mode="PERMISSIVE")
    found = decoded(spark, permissive, *bad, good)
    assert found == [None] * len(bad) + [Row(a="x")]
    strict = from_registry("value", registry.url, "bad")
    with pytest.raises(PythonException, match=f"no value of schema {number}: the registry has no"):
        decoded(spark, strict, bad[8])
    with pytest.raises(PythonException, match="does not begin with a zero byte"):
        decoded(spark, strict, b"secret")
    encoded = to_registry(f.struct(f.lit(1).alias("a")), registry.url, "bad", mode="PERMISSIVE")
    assert decoded(spark, encoded, b"") == [None]


def test_records_of_a_topic_are_decoded(
    spark: SparkSession, broker: TestBroker, registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    broker.create_topic("typed", partitions=2)
    context = SerializationContext("typed", MessageField.VALUE)
    write = AvroSerializer(
        client, '{"type":"record","name":"T","fields":[{"name":"n","type":"int"}]}'
    )
    with (
        txn.Producer(
            bootstrap_servers=broker.bootstrap_servers, transactional_id="typed"
        ) as producer,
        producer.transaction() as t,
    ):
        for number in range(100):
            t.produce("typed", write({"n": number}, context))
    frame = (
        spark.read.format("txn")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "typed")
        .load()
    )
    column = from_registry("value", {"url": registry.url}, "typed-value")
    total = frame.select(column.alias("v")).agg(f.sum("v.n")).first()
    assert total is not None
    assert total[0] == sum(range(100))


@pytest.mark.parametrize(
    ("schema", "type"),
    [
        ('{"type":"record","name":"R","fields":[{"name":"r","type":["null","R"]}]}', "AVRO"),
        ('["int","string"]', "AVRO"),
        ('{"properties":{"a":{"$ref":"#"}}}', "JSON"),
        ('syntax = "proto3"; message M { M m = 1; }', "PROTOBUF"),
        ('syntax = "proto3";', "PROTOBUF"),
    ],
)
def test_a_schema_without_a_type_in_spark_is_refused_at_once(
    registry: SchemaRegistry, client: SchemaRegistryClient, schema: str, type: str
) -> None:
    subject = f"no-type-{abs(hash(schema))}"
    client.register_schema(subject, Schema(schema, type))
    with pytest.raises(ConfigError, match=r"contains itself|has no type|no message"):
        from_registry("value", registry.url, subject)


def test_arguments_that_do_not_fit_are_refused_at_once(registry: SchemaRegistry) -> None:
    with pytest.raises(RejectedError, match="Subject 'nowhere' not found"):
        from_registry("value", registry.url, "nowhere")
    with pytest.raises(ConfigError, match="FAILFAST or PERMISSIVE"):
        from_registry("value", registry.url, "orders-value", mode="DROPMALFORMED")
    with pytest.raises(ConfigError, match='with "url"'):
        from_registry("value", {}, "orders-value")
    with pytest.raises(RetriableError, match="did not give subject"):
        from_registry("value", {"url": "http://127.0.0.1:1", "max.retries": 0}, "orders-value")
