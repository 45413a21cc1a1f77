"""kafka-python through the story of `test_clients.py`; its results as JSON.

python kafka_python.py HOST:PORT NAME
"""

import json
import sys
import time
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.structs import OffsetAndMetadata

PATIENCE_S = 60.0


def main(servers: str, name: str) -> dict[str, Any]:
    """Play the story; return its results."""
    out, brief, group = f"{name}-out", f"{name}-brief", f"{name}-group"
    told: dict[str, Any] = {}
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(name, 3, 1), NewTopic(out, 1, 1), NewTopic(brief, 1, 1)])
    while not {name, out, brief} <= {*admin.list_topics()}:
        time.sleep(0.05)
    told["partitions"] = len(admin.describe_topics([name])[0]["partitions"])

    producer = KafkaProducer(bootstrap_servers=servers, compression_type="gzip", linger_ms=5)
    told["offsets"] = produce(producer, name, range(30))

    first = consumer(servers, group, name)
    told["first"] = sorted(shown(each) for each in read([first], 30))
    first.commit()
    places = [TopicPartition(name, number) for number in range(3)]
    told["committed"] = [first.committed(place) for place in places]

    members = [first, consumer(servers, group, name)]
    deadline = time.monotonic() + PATIENCE_S
    while sorted(len(each.assignment()) for each in members) != [1, 2]:
        for each in members:
            assert not each.poll(100), "nothing is new"
        assert time.monotonic() < deadline
    told["owned"] = sorted(len(each.assignment()) for each in members)
    produce(producer, name, range(30, 60))
    told["second"] = sorted(each.value.decode() for each in read(members, 30))
    for each in members:
        each.commit()
        each.close()
    producer.close()

    transform(servers, name, out)
    told["transformed"] = sorted(
        each.value.decode() for each in read([consumer(servers, None, out)], 62)
    )
    told["all"] = len(read([consumer(servers, None, out, "read_uncommitted")], 63))

    (described,) = admin.describe_consumer_groups([group])
    told["group"] = described.state
    admin.delete_consumer_groups([group])
    admin.delete_topics([brief])
    listed = {each[0] for each in admin.list_consumer_groups()}
    while brief in admin.list_topics():
        time.sleep(0.05)  # a controller answers before the broker knows it
    told["gone"] = group not in listed
    admin.close()
    return told


def produce(producer: Any, topic: str, numbers: range) -> list[list[int]]:
    """Send a record of each number to partition `number % 3`; return the places."""
    sent = [
        producer.send(
            topic,
            key=f"k{n}".encode(),
            value=f"v{n}".encode(),
            headers=[("n", str(n).encode())],
            partition=n % 3,
        )
        for n in numbers
    ]
    producer.flush()
    return sorted([each.get(PATIENCE_S).partition, each.get().offset] for each in sent)


def consumer(servers: str, group: str | None, topic: str, isolation: str = "read_committed") -> Any:
    """A consumer from the beginning, that commits when told."""
    made = KafkaConsumer(
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
        heartbeat_interval_ms=300,
    )
    made.subscribe([topic])
    return made


def read(consumers: list[Any], count: int) -> list[Any]:
    """Poll until there are so many records."""
    found: list[Any] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} records of {count}"
        for each in consumers:
            for records in each.poll(100).values():
                found += records
    return found


def shown(record: Any) -> str:
    """A record in one word."""
    ((header, value),) = record.headers
    where = f"{record.partition}:{record.offset}"
    return f"{where}:{record.key.decode()}={record.value.decode()};{header}={value.decode()}"


def transform(servers: str, source: str, out: str) -> None:
    """Commit two records, abort one, then copy a topic with its offsets in a transaction."""
    producer = KafkaProducer(bootstrap_servers=servers, transactional_id=f"{source}-id")
    producer.init_transactions()
    for value, ends in (("t0", True), ("a0", False), ("t1", True)):
        producer.begin_transaction()
        producer.send(out, value=value.encode()).get(PATIENCE_S)
        if ends:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    reader = consumer(servers, f"{source}-copy", source)
    producer.begin_transaction()
    for each in read([reader], 60):
        producer.send(out, value=each.value.upper())
    offsets = {
        place: OffsetAndMetadata(reader.position(place), "", -1) for place in reader.assignment()
    }
    producer.send_offsets_to_transaction(offsets, f"{source}-copy")
    producer.commit_transaction()
    reader.close()
    producer.close()


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
