"""Programs that `benches.clients` measures: one client, one engine, one kind of work.

    python -m benches.client_programs small --engine native --bootstrap HOST:PORT --topic T

`confluent-kafka` is the plain library, as its users call it; `native` is txn's own client. A run
prints one line of JSON: the number of transactions or records, the seconds, and the client's
seconds of CPU. `first` counts the time from before the imports to the end of a first transaction.
The transactions of confluent-kafka in threads are those of `benches.applications`.
"""

import time

BEGAN = time.perf_counter()

import argparse  # noqa: E402
import asyncio  # noqa: E402
import json  # noqa: E402
from collections.abc import Callable  # noqa: E402
from typing import Any  # noqa: E402

from benches.threads import WAIT_S, Stopwatch, in_threads  # noqa: E402

RECORDS = 10
SMALL_PARTITIONS = 3
VALUE = b"v" * 100
BATCH_ROWS = 100_000
TURN = 1_000
"""Records between two looks at the clock or at reports."""

Options = argparse.Namespace


def small(options: Options, number: int, watch: Stopwatch) -> None:
    """Ten records to three partitions, commit."""
    import txn

    with txn.Producer(_transactional(options, number), engine="native") as producer:
        watch.wait_for_all()
        while watch.is_running:
            with watch.commit(), producer.transaction() as t:
                for record in range(RECORDS):
                    t.produce(options.topic, VALUE, partition=record % SMALL_PARTITIONS)


def loop(options: Options, number: int, watch: Stopwatch) -> None:
    """Ten records in, ten out, and their offsets in the same transaction."""
    from confluent_kafka import TopicPartition

    import txn

    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": f"{options.topic}-{number}",
        "auto.offset.reset": "earliest",
    }
    place = TopicPartition(options.topic, number, 0)
    producer = txn.Producer(_transactional(options, number), engine="native")
    with producer, txn.Consumer(settings, engine="native") as consumer:
        consumer.assign([place])
        watch.wait_for_all()
        count = 0
        while watch.is_running:
            with watch.commit(), producer.transaction(consumer) as t:
                for message in consumer.consume(RECORDS, WAIT_S):
                    t.produce(options.output, message.value(), partition=number)
            count += RECORDS
            if count % options.filled == 0:
                consumer.seek(place)


def _transactional(options: Options, number: int) -> dict[str, Any]:
    return {
        "bootstrap.servers": options.bootstrap,
        "transactional.id": f"{options.topic}-{options.engine}-{number}",
    }


def produce(options: Options) -> int:
    """Records of 100 bytes, one call each, outside transactions, by an idempotent producer."""
    settings: dict[str, Any] = {
        "bootstrap.servers": options.bootstrap,
        "enable.idempotence": True,
        "linger.ms": 5,
    }
    if options.engine == "native":
        import txn

        ends, count = time.perf_counter() + options.seconds, 0
        with txn.Producer(settings, engine="native") as native:
            while time.perf_counter() < ends:
                for _ in range(TURN):
                    native.produce(options.topic, VALUE)
                count += TURN
            native.flush()
        return count
    from confluent_kafka import Producer

    plain = Producer(settings)
    ends, count = time.perf_counter() + options.seconds, 0
    while time.perf_counter() < ends:
        for _ in range(TURN):
            while True:
                try:
                    plain.produce(options.topic, VALUE)
                    break
                except BufferError:
                    plain.poll(0.01)
        plain.poll(0)
        count += TURN
    assert plain.flush(WAIT_S) == 0
    return count


def aio(options: Options) -> int:
    """Records of 100 bytes in one transaction of `txn.aio`, each sent by an await."""
    from txn import aio as txn_aio

    async def run() -> int:
        name = f"{options.topic}-aio"
        async with txn_aio.Producer(
            bootstrap_servers=options.bootstrap, transactional_id=name, engine="native"
        ) as producer:
            ends, count = time.perf_counter() + options.seconds, 0
            async with producer.transaction() as t:
                while time.perf_counter() < ends:
                    for _ in range(TURN):
                        await t.send(options.topic, VALUE)
                    count += TURN
        return count

    return asyncio.run(run())


def columns(options: Options) -> int:
    """Records of 100 bytes as columns, outside transactions."""
    import pyarrow as pa

    import txn

    batch = pa.table({"value": pa.array([VALUE]).take(pa.array([0] * BATCH_ROWS))})
    ends, count = time.perf_counter() + options.seconds, 0
    with txn.Producer(bootstrap_servers=options.bootstrap, engine="native") as producer:
        while time.perf_counter() < ends:
            producer.write_arrow(options.topic, batch)
            count += BATCH_ROWS
        producer.flush()
    return count


def fill(options: Options) -> int:
    """Fill each partition with so many records."""
    import pyarrow as pa

    import txn

    value = pa.array([VALUE]).take(pa.array([0] * options.filled))
    with txn.Producer(bootstrap_servers=options.bootstrap, engine="native") as producer:
        for partition in range(options.producers):
            places = pa.array([partition] * options.filled, pa.int32())
            producer.write_arrow(options.topic, pa.table({"value": value, "partition": places}))
        producer.flush()
    return int(options.filled)


def _consumer(options: Options) -> Any:  # of either class
    settings = {
        "bootstrap.servers": options.bootstrap,
        "group.id": f"{options.topic}-{time.time_ns()}",
        "auto.offset.reset": "earliest",
    }
    if options.engine == "native":
        import txn

        return txn.Consumer(settings, engine="native")
    from confluent_kafka import Consumer

    return Consumer({**settings, "isolation.level": "read_committed", "enable.auto.commit": False})


def poll(options: Options) -> int:
    """Read every record of a filled topic, one call each."""
    from confluent_kafka import TopicPartition

    consumer = _consumer(options)
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    assert consumer.poll(WAIT_S) is not None
    _start_clock(options)
    count = 1
    while count < options.filled:
        if consumer.poll(WAIT_S) is not None:
            count += 1
    _stop_clock(options)
    consumer.close()
    return count


def poll_columns(options: Options) -> int:
    """Read every record of a filled topic as columns."""
    from confluent_kafka import TopicPartition

    consumer = _consumer(options)
    consumer.assign([TopicPartition(options.topic, 0, 0)])
    count = int(consumer.poll_arrow(1, WAIT_S).num_rows)
    _start_clock(options)
    while count < options.filled:
        batch = consumer.poll_arrow(BATCH_ROWS, WAIT_S)
        count += 0 if batch is None else int(batch.num_rows)
    _stop_clock(options)
    consumer.close()
    return count


def first(options: Options) -> int:
    """Import everything, commit one transaction."""
    settings = _transactional(options, 0)
    if options.engine == "native":
        import txn

        with txn.Producer(settings, engine="native") as native:
            with native.transaction() as t:
                t.produce(options.topic, VALUE)
            _stop_clock(options)
        return 1
    from confluent_kafka import Producer

    plain = Producer(settings)
    plain.init_transactions(WAIT_S)
    plain.begin_transaction()
    plain.produce(options.topic, VALUE)
    plain.commit_transaction(WAIT_S)
    _stop_clock(options)
    return 1


def _start_clock(options: Options) -> None:
    options.began, options.cpu_began = time.perf_counter(), time.process_time()


def _stop_clock(options: Options) -> None:
    options.ended = time.perf_counter()


IN_THREADS = {"small": small, "loop": loop}
ALONE = {
    "produce": produce,
    "aio": aio,
    "columns": columns,
    "fill": fill,
    "poll": poll,
    "poll-columns": poll_columns,
    "first": first,
}


def main() -> None:
    """Run one program; print its figures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("program", choices=[*IN_THREADS, *ALONE])
    parser.add_argument("--engine", choices=["native", "confluent-kafka"], default="native")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--output", help="the topic that a loop writes to")
    parser.add_argument("--producers", type=int, default=1)
    parser.add_argument("--filled", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    options.began, options.cpu_began, options.ended = BEGAN, 0.0, None
    if options.program in ALONE:
        if options.program != "first":
            _start_clock(options)
        count = ALONE[options.program](options)
        seconds = (options.ended or time.perf_counter()) - options.began
    else:
        watch = _in_threads(options)
        count, seconds = len(watch.commits_us), watch.seconds
    cpu_s = time.process_time() - options.cpu_began
    print(json.dumps({"count": count, "seconds": seconds, "cpu_s": cpu_s}))


def _in_threads(options: Options) -> Stopwatch:
    program: Callable[[Options, int, Stopwatch], None] = IN_THREADS[options.program]
    if options.engine != "native":
        from benches.applications import APPLICATIONS

        program = APPLICATIONS[options.program]
    return in_threads(
        lambda number, watch: program(options, number, watch),
        options.producers,
        options.seconds,
        on_start=lambda: _start_clock(options),
    )


if __name__ == "__main__":
    main()
