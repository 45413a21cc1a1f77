"""The pictures of docs/console.md, made from a real console beside a real broker.

    make screenshots

The broker listens at 127.0.0.1:9092, as in the documentation, so nothing else may. The story takes
some 40 seconds, as a timeline shows nothing of a story that takes one.
"""

import io
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from PIL import Image
from playwright.sync_api import ViewportSize

import txn
from console.browser import chromium_browser, open_page
from console.pages_shown import BYTES_MAX, IMAGES, PICTURES, WIDTH
from support.clients import WAIT_S, create_topic, plain_producer, transactional_producer
from support.console import ConsoleProcess

SIZE: Final = ViewportSize(width=WIDTH, height=760)
NARROW: Final = ViewportSize(width=400, height=900)
COLORS: Final = 48
BRIGHT, BRIGHT_FROM = 10, 60
Color = tuple[int, int, int]
STEP_S: Final = 3.0


def main() -> None:
    """Write the pictures, and print their sizes."""
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    where.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        txn.Broker(Path(place) / "data", port=9092, durability="process") as broker,
    ):
        holder, reader = tell(broker.bootstrap_servers)
        console = ConsoleProcess("--bootstrap", broker.bootstrap_servers, "--write")
        for scheme, size in (("light", SIZE), ("dark", SIZE), ("narrow", NARROW)):
            if scheme == "light" or where != IMAGES:
                take(console, where, scheme, size)
        console.stop()
        with suppress(KafkaException):  # it may have timed out
            holder.abort_transaction(WAIT_S)
        reader.close()
    large = [name for name in PICTURES if (where / f"{name}.png").stat().st_size > BYTES_MAX]
    if large:
        sys.exit(f"too large for the repository: {', '.join(large)}")


def take(console: ConsoleProcess, where: Path, scheme: str, size: ViewportSize) -> None:
    """Write every picture in a colour scheme, or at the width of a telephone."""
    with (
        chromium_browser() as browser,
        open_page(
            browser,
            console.url,
            scheme=scheme,
            scripts=False,  # no word about following
            size=size,
        ) as (page, _),
    ):
        for name, (address, _words) in PICTURES.items():
            page.goto(f"{console.base}{address}")
            suffix = "" if scheme == "light" else f"-{scheme}"
            path = where / f"{name}{suffix}.png"
            # A frame as high as the page: the navigation is as high as the frame.
            height = page.evaluate("document.documentElement.scrollHeight")
            page.set_viewport_size({**size, "height": height})
            path.write_bytes(small(page.screenshot()))
            page.set_viewport_size(size)
            print(f"{path}: {path.stat().st_size:,} bytes", flush=True)


def small(png: bytes) -> bytes:
    """The same picture with a palette."""
    written = io.BytesIO()
    picture = Image.open(io.BytesIO(png)).convert("RGB")
    # The colours that most pixels have, as they are: a mean of colours would tint the ground. A bar
    # has fewer pixels than the greys of letters, so bright colours count more.
    counted = [
        (count * (BRIGHT if max(color) - min(color) > BRIGHT_FROM else 1), color)
        for count, color in cast(list[tuple[int, Color]], picture.getcolors(1 << 24))
    ]
    palette = Image.new("P", (1, 1))
    palette.putpalette([part for _, color in sorted(counted)[: -COLORS - 1 : -1] for part in color])
    smaller = picture.quantize(palette=palette, dither=Image.Dither.NONE)
    smaller.save(written, "PNG", optimize=True)
    return written.getvalue()


def tell(servers: str) -> tuple[Producer, Consumer]:
    """Write the story; return the producer that holds readers back, and the member of a group."""
    create_topic(servers, "orders", 2)
    create_topic(servers, "invoices")
    one, two, three = (
        transactional_producer(servers, f"pay-{number}", client_id="payments")
        for number in (1, 2, 3)
    )
    ship = transactional_producer(servers, "ship-1", client_id="shipping")
    reader = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "billing",
            "client.id": "billing-1",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    reader.subscribe(["orders"])
    plain = plain_producer(servers)
    for name in ("apples", "pears"):
        plain.produce("orders", b'{"item": "%s"}' % name.encode(), key=b"4711", partition=1)
    plain.flush()
    transaction(one, ("orders", 0, b"4711", b'{"item": "apples", "count": 3}'))
    transaction(two, ("orders", 0, b"4712", b'{"item": "plums", "count": 1}'), is_commit=False)
    transaction(
        ship,
        ("orders", 1, b"4711", b'{"sent": "2 boxes"}'),
        ("invoices", 0, b"4711", b'{"euro": 12}'),
    )
    assert reader.poll(WAIT_S) is not None  # it has joined
    read = [TopicPartition("orders", 0, 2), TopicPartition("orders", 1, 3)]
    reader.commit(offsets=read, asynchronous=False)
    transaction(two, ("orders", 0, b"4712", b'{"item": "plums", "count": 2}'))
    ship = transactional_producer(servers, "ship-1", client_id="shipping")
    transaction(ship, ("orders", 1, b"4712", b'{"sent": "1 box"}'))
    three.begin_transaction()
    write(three, ("orders", 0, b"4713", b'{"item": "figs", "count": 7}'))
    write(three, ("invoices", 0, b"4713", b'{"euro": 21}'))
    metadata = reader.consumer_group_metadata()
    three.send_offsets_to_transaction([TopicPartition("invoices", 0, 2)], metadata)
    time.sleep(STEP_S)
    transaction(one, ("orders", 0, b"4714", b'{"item": "kiwis", "count": 4}'))
    time.sleep(STEP_S)
    return three, reader


def transaction(
    producer: Producer, *records: tuple[str, int, bytes, bytes], is_commit: bool = True
) -> None:
    """One transaction that takes some seconds."""
    producer.begin_transaction()
    for record in records:
        write(producer, record)
        time.sleep(STEP_S)
    if is_commit:
        producer.commit_transaction(WAIT_S)
    else:
        producer.abort_transaction(WAIT_S)
    time.sleep(STEP_S / 3)


def write(producer: Producer, record: tuple[str, int, bytes, bytes]) -> None:
    topic, partition, key, value = record
    producer.produce(topic, value, key=key, partition=partition)
    assert producer.flush(WAIT_S) == 0


if __name__ == "__main__":
    main()
