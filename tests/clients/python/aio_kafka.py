"""aiokafka through the story of `test_clients.py`; its results as JSON.

python aio_kafka.py HOST:PORT NAME
"""

import asyncio
import json
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

PATIENCE_S = 60.0


async def main(servers: str, name: str) -> dict[str, Any]:
    """Play the story; return its results."""
    out, brief, group = f"{name}-out", f"{name}-brief", f"{name}-group"
    told: dict[str, Any] = {}
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(name, 3, 1), NewTopic(out, 1, 1), NewTopic(brief, 1, 1)])
    while not {name, out, brief} <= {*await admin.list_topics()}:
        continue  # a controller answers before the broker knows them
    told["partitions"] = len((await admin.describe_topics([name]))[0]["partitions"])

    producer = AIOKafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, compression_type="gzip"
    )
    await producer.start()
    told["offsets"] = await produce(producer, name, range(30))

    first = await consumer(servers, group, name)
    told["first"] = sorted(shown(each) for each in await read([first], 30))
    await first.commit()
    places = [TopicPartition(name, number) for number in range(3)]
    told["committed"] = [await first.committed(place) for place in places]

    members = [first, await consumer(servers, group, name)]
    while sorted(len(each.assignment()) for each in members) != [1, 2]:
        for each in members:
            assert not await each.getmany(timeout_ms=100), "nothing is new"
    told["owned"] = sorted(len(each.assignment()) for each in members)
    await produce(producer, name, range(30, 60))
    told["second"] = sorted(each.value.decode() for each in await read(members, 30))
    for each in members:
        await each.commit()
        await each.stop()
    await producer.stop()

    await transform(servers, name, out)
    for key, isolation, count in (
        ("transformed", "read_committed", 62),
        ("all", "read_uncommitted", 63),
    ):
        reader = await consumer(servers, None, out, isolation)
        found = sorted(each.value.decode() for each in await read([reader], count))
        told[key] = found if key == "transformed" else len(found)
        await reader.stop()

    (described,) = await admin.describe_consumer_groups([group])
    told["group"] = described.groups[0][2]
    await admin.delete_topics([brief])  # it cannot delete groups
    while brief in await admin.list_topics():
        continue
    told["gone"] = True
    await admin.close()
    return told


async def produce(producer: Any, topic: str, numbers: range) -> list[list[int]]:
    """Send a record of each number to partition `number % 3`; return the places."""
    sent = [
        await producer.send(
            topic,
            key=f"k{n}".encode(),
            value=f"v{n}".encode(),
            headers=[("n", str(n).encode())],
            partition=n % 3,
        )
        for n in numbers
    ]
    answers = await asyncio.gather(*sent)
    return sorted([each.partition, each.offset] for each in answers)


async def consumer(
    servers: str, group: str | None, topic: str, isolation: str = "read_committed"
) -> Any:
    """A consumer from the beginning, that commits when told."""
    made = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        isolation_level=isolation,
        heartbeat_interval_ms=300,
    )
    await made.start()
    return made


async def read(consumers: list[Any], count: int) -> list[Any]:
    """Poll until there are so many records."""
    found: list[Any] = []
    while len(found) < count:
        for each in consumers:
            for records in (await each.getmany(timeout_ms=100)).values():
                found += records
    return found


def shown(record: Any) -> str:
    """A record in one word."""
    ((header, value),) = record.headers
    where = f"{record.partition}:{record.offset}"
    return f"{where}:{record.key.decode()}={record.value.decode()};{header}={value.decode()}"


async def transform(servers: str, source: str, out: str) -> None:
    """Commit two records, abort one, then copy a topic with its offsets in a transaction."""
    producer = AIOKafkaProducer(bootstrap_servers=servers, transactional_id=f"{source}-id")
    await producer.start()
    for value, ends in (("t0", True), ("a0", False), ("t1", True)):
        await producer.begin_transaction()
        await producer.send_and_wait(out, value.encode())
        if ends:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
    reader = await consumer(servers, f"{source}-copy", source)
    async with producer.transaction():
        for each in await read([reader], 60):
            await producer.send(out, each.value.upper())
        offsets = {place: await reader.position(place) for place in reader.assignment()}
        await producer.send_offsets_to_transaction(offsets, f"{source}-copy")
    await reader.stop()
    await producer.stop()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(asyncio.wait_for(main(*sys.argv[1:]), 2 * PATIENCE_S))))
