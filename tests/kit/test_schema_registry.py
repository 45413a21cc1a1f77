"""The schema registry of the kit, as confluent-kafka's own client and serializers use it."""

import http.client
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.common.schema_registry_client import (
    Metadata,
    MetadataProperties,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import (
    MessageField,
    SerializationContext,
    SerializationError,
)
from google.protobuf import descriptor_pool, message_factory

from txn.errors import RejectedError
from txn.testing import SchemaRegistry, TestBroker
from txn.testing.registry import proto_text

ORDER = '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"}]}'
WITH_COUNT = (
    '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},'
    '{"name":"count","type":"int","default":1}]}'
)
WITH_PRICE = (
    '{"type":"record","name":"Order","fields":[{"name":"item","type":"string"},'
    '{"name":"price","type":"long"}]}'
)


@pytest.fixture
def registry(txn_fresh_broker: TestBroker) -> SchemaRegistry:
    return txn_fresh_broker.schema_registry()


Fresh = Callable[..., SchemaRegistryClient]


@pytest.fixture
def fresh() -> Iterator[Fresh]:
    """Makes clients that have nothing in their caches."""
    with ExitStack() as clients:

        def fresh(registry: SchemaRegistry, **more: str) -> SchemaRegistryClient:
            known = {"url": registry.url, "max.retries": 0, **more}
            client: SchemaRegistryClient = clients.enter_context(SchemaRegistryClient(known))
            return client

        yield fresh


@pytest.fixture
def client(registry: SchemaRegistry, fresh: Fresh) -> SchemaRegistryClient:
    return fresh(registry)


def forget(client: Any) -> None:
    """Empty the caches of a client."""
    client.clear_caches()


def refused(call: Any, *args: Any, **kwargs: Any) -> tuple[int, int, str]:
    with pytest.raises(SchemaRegistryError) as raised:
        call(*args, **kwargs)
    error = raised.value
    return error.http_status_code, error.error_code, error.error_message


def ask(registry: SchemaRegistry, method: str, path: str, body: bytes | None = None) -> Any:
    connection = http.client.HTTPConnection(registry.url.removeprefix("http://"), timeout=60)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.status, json.loads(answer.read())
    connection.close()
    return found


# ---------------------------------------------------------------- serializers


def test_avro_goes_through_a_transaction_and_back(
    txn_fresh_broker: TestBroker, client: SchemaRegistryClient
) -> None:
    broker = txn_fresh_broker
    broker.create_topic("orders")
    context = SerializationContext("orders", MessageField.VALUE)
    write = AvroSerializer(client, ORDER)
    servers = {"bootstrap.servers": broker.bootstrap_servers}
    producer = Producer({**servers, "transactional.id": "shop"})
    producer.init_transactions()
    for item, ends in (("fig", producer.commit_transaction), ("no", producer.abort_transaction)):
        producer.begin_transaction()
        producer.produce("orders", write({"item": item}, context))
        producer.flush()
        ends()
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    [message] = consumer.consume(1, timeout=60)
    assert AvroDeserializer(client)(message.value(), context) == {"item": "fig"}
    assert AvroDeserializer(client, WITH_COUNT)(message.value(), context) == {
        "item": "fig",
        "count": 1,
    }
    consumer.close()
    assert client.get_subjects() == ["orders-value"]


def test_avro_uses_schemas_of_other_subjects(client: SchemaRegistryClient) -> None:
    money = '{"type":"record","name":"Money","namespace":"m","fields":[{"name":"n","type":"int"}]}'
    text = '{"type":"record","name":"P","fields":[{"name":"price","type":"m.Money"}]}'
    client.register_schema("money", Schema(money, "AVRO"))
    schema = Schema(text, "AVRO", [SchemaReference("m.Money", "money", 1)])
    context = SerializationContext("prices", MessageField.VALUE)
    value = AvroSerializer(client, schema)({"price": {"n": 7}}, context)
    assert AvroDeserializer(client)(value, context) == {"price": {"n": 7}}
    assert client.get_referenced_by("money", 1) == [2]
    assert refused(client.delete_version, "money", 1)[:2] == (422, 42206)
    assert refused(client.delete_subject, "money")[:2] == (422, 42206)
    unknown = Schema(text, "AVRO", [SchemaReference("m.Money", "money", 9)])
    assert refused(client.register_schema, "other", unknown)[:2] == (422, 42201)


def test_json_goes_through_and_back_with_a_reference(client: SchemaRegistryClient) -> None:
    money = '{"title":"Money","type":"object","required":["n"],"properties":{"n":{}}}'
    text = '{"title":"P","type":"object","properties":{"price":{"$ref":"money.json"}}}'
    client.register_schema("money", Schema(money, "JSON"))
    schema = Schema(text, "JSON", [SchemaReference("money.json", "money", 1)])
    context = SerializationContext("prices", MessageField.VALUE)
    write = JSONSerializer(schema, client)
    value = write({"price": {"n": 7}}, context)
    read = JSONDeserializer(schema, schema_registry_client=client)
    assert read(value, context) == {"price": {"n": 7}}
    with pytest.raises(SerializationError):
        write({"price": {}}, context)
    assert client.get_latest_version("prices-value").schema.schema_type == "JSON"
    closed = Schema(
        text.replace("{", '{"additionalProperties":false,', 1), "JSON", schema.references
    )
    assert refused(client.register_schema, "prices-value", closed)[1] == 409
    avro = Schema('"int"', "AVRO")
    assert "different schema type" in refused(client.register_schema, "prices-value", avro)[2]
    mixed = Schema(text, "JSON", [SchemaReference("money.json", "prices-value", 1)])
    client.register_schema("other", mixed)  # any schema of the type may be referred to
    assert refused(client.register_schema, "x", Schema(text, "JSON"))[:2] == (422, 42201)


def message_class(name: str, *files: tuple[str, str]) -> Any:
    """The class of a message, made of `.proto` texts: the last file has it."""
    pool = descriptor_pool.DescriptorPool()
    for path, text in files:
        made = proto_text.parse(text).file
        made.name = path
        pool.Add(made)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_goes_through_and_back_with_an_import(
    registry: SchemaRegistry, client: SchemaRegistryClient, fresh: Fresh
) -> None:
    money = ("money.proto", 'syntax = "proto3"; package m; message Money { int64 n = 1; }')
    text = """syntax = "proto3"; package p; import "money.proto";
        message Other {} message Price { message In { m.Money money = 1; } string item = 2; }"""
    inner = message_class("p.Price.In", money, ("price.proto", text))
    context = SerializationContext("prices", MessageField.VALUE)
    value = ProtobufSerializer(inner, client)(inner(money={"n": 7}), context)
    assert value is not None
    assert value[:8] == b"\0\0\0\0\2\4\2\0"  # magic, id 2, two indexes: 1, 0
    for reader in (client, fresh(registry)):
        read = ProtobufDeserializer(inner, schema_registry_client=reader)
        assert read(value, context).money.n == 7
    stored = client.get_latest_version("prices-value").schema
    assert stored.references is not None
    assert str(stored.schema_str).startswith('syntax = "proto3";\npackage p;')
    assert [each.name for each in stored.references] == ["money.proto"]
    assert client.get_subjects() == ["money.proto", "prices-value"]
    schema = Schema(text, "PROTOBUF", stored.references)
    assert client.lookup_schema("prices-value", schema).version == 1
    assert client.test_compatibility("prices-value", schema) is True
    changed = text.replace("string item", "int32 item")
    bad = Schema(changed, "PROTOBUF", stored.references)
    assert client.test_compatibility("prices-value", bad) is False
    assert "FIELD_SCALAR_KIND_CHANGED" in refused(client.register_schema, "prices-value", bad)[2]
    lonely = Schema(text, "PROTOBUF")
    assert refused(client.register_schema, "x", lonely)[:2] == (422, 42201)


# ---------------------------------------------------------------- schemas


def test_a_schema_has_one_id_in_every_subject(client: SchemaRegistryClient) -> None:
    assert client.register_schema("a", Schema(ORDER, "AVRO")) == 1
    assert client.register_schema("a", Schema(WITH_COUNT, "AVRO")) == 2
    assert client.register_schema("b", Schema(json.dumps(json.loads(ORDER)), "AVRO")) == 1
    forget(client)
    assert client.register_schema("a", Schema(ORDER, "AVRO")) == 1
    assert client.get_versions("a") == [1, 2]
    found = client.lookup_schema("a", Schema(WITH_COUNT, "AVRO"))
    assert (found.version, found.schema_id, found.schema.schema_str) == (2, 2, WITH_COUNT)
    assert client.get_subjects_by_schema_id(1) == ["a", "b"]
    assert [(each.subject, each.version) for each in client.get_schema_versions(2)] == [("a", 2)]
    assert client.get_schema_types() == ["AVRO", "JSON", "PROTOBUF"]
    assert client.get_contexts() == ["."]


def test_a_schema_is_found_by_its_guid(
    registry: SchemaRegistry, client: SchemaRegistryClient, fresh: Fresh
) -> None:
    guid = client.register_schema_full_response("a", Schema(ORDER, "AVRO")).guid
    assert guid is not None
    assert fresh(registry).get_schema_by_guid(guid).schema_str == ORDER
    assert refused(client.get_schema_by_guid, guid.replace(guid[0], "z"))[:2] == (404, 40403)


def test_metadata_is_kept_and_asked_for(client: SchemaRegistryClient) -> None:
    owner = MetadataProperties.from_dict({"owner": "ann"})
    meta = Metadata(tags=None, properties=owner, sensitive=None)
    client.register_schema("a", Schema(ORDER, "AVRO", [], meta))
    client.register_schema("a", Schema(WITH_COUNT, "AVRO"))
    assert client.get_latest_with_metadata("a", {"owner": "ann"}).version == 1
    assert refused(client.get_latest_with_metadata, "a", {"owner": "bob"})[:2] == (404, 40403)


def test_texts_that_normalize_to_the_same_are_the_same(client: SchemaRegistryClient) -> None:
    one, other = '{"type":"int","x":1,"a":2}', '{"a":2,"type":"int","x":1}'
    client.register_schema("a", Schema(one, "AVRO"), normalize_schemas=True)
    assert client.lookup_schema("a", Schema(other, "AVRO"), normalize_schemas=True).version == 1
    assert refused(client.lookup_schema, "a", Schema(one, "AVRO"))[:2] == (404, 40403)
    client.set_config("a", ServerConfig(compatibility=None))
    assert client.get_latest_version("a").schema.schema_str == '{"type":"int","a":2,"x":1}'


def test_errors_have_the_codes_and_texts_of_the_original(client: SchemaRegistryClient) -> None:
    order = Schema(ORDER, "AVRO")
    assert refused(client.get_versions, "a") == (404, 40401, "Subject 'a' not found.")
    assert refused(client.get_latest_version, "a") == (404, 40401, "Subject 'a' not found.")
    assert refused(client.lookup_schema, "a", order) == (404, 40401, "Subject 'a' not found.")
    assert refused(client.delete_subject, "a") == (404, 40401, "Subject 'a' not found.")
    assert refused(client.get_schema, 7) == (404, 40403, "Schema 7 not found")
    client.register_schema("a", order)
    assert refused(client.get_version, "a", 9) == (404, 40402, "Version 9 not found.")
    assert refused(client.delete_version, "a", 9) == (404, 40402, "Version 9 not found.")
    assert refused(client.get_version, "a", "x")[:2] == (422, 42202)
    assert refused(client.get_version, "a", 0)[:2] == (422, 42202)
    assert refused(client.lookup_schema, "a", Schema('"int"', "AVRO")) == (
        *(404, 40403),
        "Schema not found",
    )
    assert refused(client.register_schema, "a", Schema("{}", "AVRO"))[:2] == (422, 42201)
    assert refused(client.register_schema, "a", Schema(ORDER, "XML"))[:2] == (422, 42201)
    assert refused(client.register_schema, ":.x:a", order)[:2] == (422, 42208)
    large = Schema(json.dumps({"type": "int", "x": "y" * (1 << 20)}), "AVRO")
    assert refused(client.register_schema, "a", large)[:2] == (422, 42209)
    larger = Schema(json.dumps({"type": "int", "x": "y" * (5 << 20)}), "AVRO")
    assert refused(client.register_schema, "a", larger)[0] == 413


# ---------------------------------------------------------------- compatibility

REMOVED, ADDED_WITH_DEFAULT, ADDED = (ORDER, WITH_PRICE), (WITH_COUNT, ORDER), (WITH_PRICE, ORDER)


@pytest.mark.parametrize(
    ("level", "change", "is_compatible"),
    [
        ("NONE", ADDED, True),
        ("BACKWARD", REMOVED, True),
        ("BACKWARD", ADDED_WITH_DEFAULT, True),
        ("BACKWARD", ADDED, False),
        ("FORWARD", REMOVED, False),
        ("FORWARD", ADDED_WITH_DEFAULT, True),
        ("FORWARD", ADDED, True),
        ("FULL", REMOVED, False),
        ("FULL", ADDED_WITH_DEFAULT, True),
        ("FULL", ADDED, False),
    ],
)
def test_a_level_accepts_a_change_or_refuses_it(
    client: SchemaRegistryClient, level: str, change: tuple[str, str], is_compatible: bool
) -> None:
    new, old = (Schema(text, "AVRO") for text in change)
    client.register_schema("a", old)
    client.set_compatibility("a", level)
    assert client.test_compatibility("a", new) is is_compatible
    if is_compatible:
        assert client.register_schema("a", new) == 2
    else:
        status, code, text = refused(client.register_schema, "a", new)
        assert (status, code) == (409, 409)
        start = 'Schema being registered is incompatible with an earlier schema for subject "a"'
        assert text.startswith(start)
        assert "READER_FIELD_MISSING_DEFAULT_VALUE" in text
        assert f"{{compatibility: '{level}'}}" in text


@pytest.mark.parametrize("level", ["BACKWARD", "FORWARD", "FULL"])
def test_a_transitive_level_looks_at_every_version(
    client: SchemaRegistryClient, level: str
) -> None:
    """The first version has no count, the second gives it a default, and the third does not."""
    required = WITH_COUNT.replace(',"default":1', "")
    texts = (ORDER, WITH_COUNT, required)
    first, second, third = (
        Schema(text, "AVRO") for text in (texts if level != "FORWARD" else reversed(texts))
    )
    client.set_compatibility("a", "NONE")
    client.register_schema("a", first)
    client.register_schema("a", second)
    client.set_compatibility("a", f"{level}_TRANSITIVE")
    assert client.test_compatibility_all_versions("a", third) is False
    assert refused(client.register_schema, "a", third)[1] == 409
    client.set_compatibility("a", level)
    assert client.register_schema("a", third) == 3


def test_levels_and_modes_are_of_a_subject_or_of_all(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    assert client.get_compatibility() == "BACKWARD"
    text = "Subject 'a' does not have subject-level compatibility configured"
    assert refused(client.get_compatibility, "a") == (404, 40408, text)
    client.set_compatibility(level="FULL")
    client.set_compatibility("a", "NONE")
    assert (client.get_compatibility(), client.get_compatibility("a")) == ("FULL", "NONE")
    assert ask(registry, "GET", "/config/b?defaultToGlobal=true")[1] == {
        "compatibilityLevel": "FULL"
    }
    client.delete_config("a")
    assert refused(client.delete_config, "a")[:2] == (404, 40401)
    assert refused(client.set_compatibility, "a", "SOMEHOW")[:2] == (422, 42203)
    assert client.get_global_mode() == "READWRITE"
    assert refused(client.get_mode, "a")[:2] == (404, 40409)
    client.update_mode("a", "READONLY")
    assert refused(client.register_schema, "a", Schema(ORDER, "AVRO")) == (
        *(422, 42205),
        "Subject a in context . is in read-only mode",
    )
    assert client.delete_mode("a") == "READONLY"
    assert refused(client.update_mode, "a", "SOMEHOW")[:2] == (422, 42204)


def test_an_import_keeps_ids_and_versions(
    registry: SchemaRegistry, client: SchemaRegistryClient
) -> None:
    given = {"schema": ORDER, "id": 70, "version": 3}
    path, body = "/subjects/a/versions", json.dumps(given).encode()
    assert ask(registry, "POST", path, body)[1]["error_code"] == 42205
    client.update_mode("a", "IMPORT")
    assert ask(registry, "POST", path, body)[0] == 200
    other = json.dumps({**given, "schema": WITH_COUNT}).encode()
    assert ask(registry, "POST", path, other)[1]["error_code"] == 42207
    client.update_mode("a", "READWRITE")
    assert client.get_latest_version("a").schema_id == 70
    assert client.register_schema("b", Schema(WITH_COUNT, "AVRO")) == 71


# ---------------------------------------------------------------- deletes


def test_a_version_is_deleted_softly_and_then_for_good(client: SchemaRegistryClient) -> None:
    client.register_schema("a", Schema(ORDER, "AVRO"))
    client.register_schema("a", Schema(WITH_COUNT, "AVRO"))
    assert refused(client.delete_version, "a", 1, permanent=True)[:2] == (404, 40407)
    assert client.delete_version("a", 1) == 1
    assert refused(client.delete_version, "a", 1)[:2] == (404, 40406)
    forget(client)
    assert client.get_versions("a") == [2]
    assert client.get_versions("a", deleted=True) == [1, 2]
    assert refused(client.get_version, "a", 1)[1] == 40402
    assert client.get_version("a", 1, deleted=True).schema_id == 1
    assert client.get_schema(1).schema_str == ORDER  # readers of old records need it
    assert client.delete_version("a", 1, permanent=True) == 1
    forget(client)
    assert refused(client.get_schema, 1)[1] == 40403


def test_a_subject_is_deleted_softly_and_then_for_good(
    registry: SchemaRegistry, client: SchemaRegistryClient, fresh: Fresh
) -> None:
    other = fresh(registry)
    client.register_schema("a", Schema(ORDER, "AVRO"))
    client.register_schema("a", Schema(WITH_COUNT, "AVRO"))
    client.set_compatibility("a", "FULL")
    assert other.delete_subject("a") == [1, 2]
    assert refused(other.delete_subject, "a")[:2] == (404, 40404)
    assert (other.get_subjects(), other.get_subjects(deleted=True)) == ([], ["a"])
    assert other.register_schema("a", Schema(ORDER, "AVRO")) == 1
    assert other.get_versions("a", deleted=True) == [2, 3]  # it replaced the deleted one
    assert refused(other.delete_subject, "a", permanent=True)[:2] == (404, 40405)
    assert other.delete_subject("a") == [3]
    assert other.delete_subject("a", permanent=True) == [2, 3]
    forget(client)
    assert client.get_subjects(deleted=True) == []
    assert refused(client.get_compatibility, "a")[1] == 40408
    assert client.register_schema("a", Schema(WITH_PRICE, "AVRO")) == 3  # no id comes again
    assert client.get_versions("a") == [1]


# ---------------------------------------------------------------- the topic


def test_the_topic_has_the_records_of_the_original(
    txn_fresh_broker: TestBroker, client: SchemaRegistryClient
) -> None:
    broker = txn_fresh_broker
    client.register_schema("a", Schema('"int"', "AVRO"))
    reference = SchemaReference("r", "a", 1)
    client.register_schema("b", Schema('"long"', "AVRO", [reference]))
    client.set_compatibility("a", "FULL")
    client.set_compatibility(level="NONE")
    client.update_mode("a", "READONLY")
    client.delete_mode("a")
    client.delete_subject("b")
    assert [(each.key, each.value) for each in broker.records("_schemas")] == [
        (
            b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
            b'{"subject":"a","version":1,"id":1,"schema":"\\"int\\"","deleted":false}',
        ),
        (
            b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}',
            b'{"subject":"b","version":1,"id":2,'
            b'"references":[{"name":"r","subject":"a","version":1}],'
            b'"schema":"\\"long\\"","deleted":false}',
        ),
        (
            b'{"keytype":"CONFIG","subject":"a","magic":0}',
            b'{"subject":"a","compatibilityLevel":"FULL"}',
        ),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"NONE"}'),
        (b'{"keytype":"MODE","subject":"a","magic":0}', b'{"subject":"a","mode":"READONLY"}'),
        (b'{"keytype":"MODE","subject":"a","magic":0}', None),
        (
            b'{"keytype":"DELETE_SUBJECT","subject":"b","magic":0}',
            b'{"subject":"b","version":1}',
        ),
    ]


def test_the_records_of_an_original_are_read(
    txn_fresh_broker: TestBroker, client: SchemaRegistryClient
) -> None:
    """Older originals write a null subject; keys that are not known are left alone."""
    broker = txn_fresh_broker
    broker.create_topic("_schemas", cleanup_policy="compact")
    broker.produce(
        "_schemas",
        ('{"keytype":"NOOP","magic":0}', None),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"FULL"}'),
        (
            '{"keytype":"SCHEMA","subject":"a","version":4,"magic":1}',
            '{"subject":"a","version":4,"id":9,"md5":"?","schema":"\\"int\\"","new":1}',
        ),
        ("no key", "no value"),
        ('{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', '{"subject":"b"}'),
        ('{"keytype":"ASSOC","magic":0}', "{}"),
    )
    assert client.get_compatibility() == "FULL"
    assert (client.get_subjects(), client.get_versions("a")) == (["a"], [4])
    assert client.get_schema(9).schema_str == '"int"'
    assert refused(client.register_schema, "a", Schema('"long"', "AVRO"))[1] == 409
    client.set_compatibility("a", "BACKWARD")
    assert client.register_schema("a", Schema('"long"', "AVRO")) == 10
    assert client.get_versions("a") == [4, 5]


def test_a_restart_reads_the_topic_back_and_a_reset_empties_it(
    txn_fresh_broker: TestBroker,
    registry: SchemaRegistry,
    client: SchemaRegistryClient,
    fresh: Fresh,
) -> None:
    client.register_schema("a", Schema(ORDER, "AVRO"))
    txn_fresh_broker.restart()
    assert fresh(registry).get_latest_version("a").schema.schema_str == ORDER
    with txn_fresh_broker.schema_registry() as other:
        assert fresh(other).register_schema("b", Schema(WITH_COUNT, "AVRO")) == 2
    with txn_fresh_broker.snapshot() as snapshot:
        client.register_schema("c", Schema(WITH_PRICE, "AVRO"))
        txn_fresh_broker.reset(snapshot)
        assert fresh(registry).get_subjects() == ["a", "b"]
    txn_fresh_broker.reset()
    assert txn_fresh_broker.topics() == []
    assert fresh(registry).get_subjects() == []
    assert fresh(registry).register_schema("z", Schema('"int"', "AVRO")) == 1


# ---------------------------------------------------------------- HTTP


def test_a_user_has_to_log_in_if_asked_to(txn_fresh_broker: TestBroker, fresh: Fresh) -> None:
    registry = txn_fresh_broker.schema_registry(user_info="ann:se:cret")
    assert refused(fresh(registry).get_subjects)[0] == 401
    for wrong in ("ann:secret", "bob:se:cret"):
        client = fresh(registry, **{"basic.auth.user.info": wrong})
        assert refused(client.get_subjects)[0] == 401
    assert fresh(registry, **{"basic.auth.user.info": "ann:se:cret"}).get_subjects() == []
    with pytest.raises(RejectedError, match="name:password"):
        txn_fresh_broker.schema_registry(user_info="ann")


def test_a_registry_ends_with_its_broker() -> None:
    with TestBroker() as broker:
        registry = broker.schema_registry()
        ask(registry, "GET", "/subjects")
        idle = http.client.HTTPConnection(registry.url.removeprefix("http://"))
        idle.request("GET", "/subjects")
        idle.getresponse().read()
    with pytest.raises(ConnectionError):
        ask(registry, "GET", "/subjects")
    idle.close()


def test_the_fixture_is_a_registry_on_the_shared_broker(
    txn_broker: TestBroker, txn_schema_registry: SchemaRegistry, fresh: Fresh
) -> None:
    fresh(txn_schema_registry).register_schema("fixture", Schema(ORDER, "AVRO"))
    assert len(txn_broker.records("_schemas")) > 0


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/subjects/a/b/c/d/e", 404),
        ("PUT", "/subjects", 405),
        ("GET", "/schemas/ids/x", 404),
        ("GET", "/subjects/%ff", 400),
        ("GET", "/subjects?" + "a=1&" * 200, 400),
        ("GET", "/subjects?limit=x", 404),
        ("GET", "/schemas/ids/99999999999999999999", 404),
    ],
)
def test_a_path_that_is_not_there_is_refused(
    registry: SchemaRegistry, method: str, path: str, status: int
) -> None:
    found, answer = ask(registry, method, path)
    assert (found, set(answer)) == (status, {"error_code", "message"})


SCHEMAS = {
    "AVRO": WITH_COUNT,
    "JSON": '{"type":["object","null"],"properties":{"a":{"$ref":"#/x"}},"x":{"enum":[1]}}',
    "PROTOBUF": 'syntax="proto3"; import "r"; message A { map<int32, A> a = 1 [packed=true]; }',
}


@pytest.mark.parametrize("type", SCHEMAS)
def test_no_body_makes_the_registry_fail(
    registry: SchemaRegistry, client: SchemaRegistryClient, type: str
) -> None:
    """Bodies are cut, doubled and changed at random places; each gets an answer in JSON."""
    client.set_compatibility(level="FULL_TRANSITIVE")
    first = {**SCHEMAS, "PROTOBUF": 'syntax="proto3"; message R {}'}[type]
    client.register_schema("a", Schema(first, type))
    given = {
        "schema": SCHEMAS[type],
        "schemaType": type,
        "references": [{"name": "r", "subject": "a", "version": 1}],
        "metadata": {"properties": {"x": "y"}},
    }
    whole = json.dumps(given).encode()
    chance = random.Random(38)
    bodies = [b"", b"[]", b"null", b"NaN", b'{"schema":1}', b"[" * 100_000, b'{"a":' * 9_000]
    lone = json.dumps({"schema": '{"title":"\\ud800"}', "schemaType": "JSON"}).encode()
    bodies += [lone, b'{"schema":"\\ud800"}', b'{"schema":"\\"int\\"","references":[1]}']
    bodies += [b'{"schema":"\\"int\\"","metadata":7}', b'{"schema":"x","id":"y"}', b"\xff"]
    bodies += [b'{"schema":"\\"int\\"","id":' + b"9" * 5_000 + b"}"]
    for _ in range(100):
        at = chance.randrange(len(whole))
        piece = bytes(chance.choice(b'{}[]":,01x\\\xff') for _ in range(chance.randrange(3)))
        bodies.append(whole[:at] + piece + whole[at + chance.randrange(4) :])
    paths = ("/subjects/a/versions", "/subjects/a", "/compatibility/subjects/a/versions/latest")
    for body in bodies:
        for method, path in [
            *(("POST", at) for at in paths),
            ("PUT", "/config/b"),
            ("PUT", "/mode/b"),
        ]:
            status, answer = ask(registry, method, path, body)
            assert status in (200, 400, 404, 409, 422), (status, answer, body)
            assert isinstance(answer, dict)
            assert "Traceback" not in json.dumps(answer)
    assert ask(registry, "GET", "/subjects")[0] == 200


def test_a_request_that_is_no_http_gets_an_answer_in_json(registry: SchemaRegistry) -> None:
    connection = http.client.HTTPConnection(registry.url.removeprefix("http://"), timeout=60)
    connection.putrequest("POST", "/subjects/a")
    connection.putheader("Transfer-Encoding", "chunked")
    connection.endheaders()
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["error_code"]) == (411, 411)
    connection.close()
    assert ask(registry, "BREW", "/subjects")[0] == 501
