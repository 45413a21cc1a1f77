"""The shop beside a real broker: requests at the same time, refused ones, a lost producer."""

import asyncio
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import httpx2
import pytest

from txn.testing import TestBroker

REQUESTS = 20


@pytest.fixture
def broker() -> Iterator[TestBroker]:
    with TestBroker() as made:
        made.create_topic("orders")
        made.create_topic("invoices")
        yield made


@pytest.fixture
def shop(broker: TestBroker, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("KAFKA", broker.bootstrap_servers)
    spec = importlib.util.spec_from_file_location(
        "shop_of_fastapi", Path(__file__).parent / "shop.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(__import__("sys").modules, spec.name, module)
    spec.loader.exec_module(module)
    return module


def keys(broker: TestBroker, topic: str) -> list[bytes | None]:
    return sorted((record.key for record in broker.records(topic)), key=str)


def test_each_request_publishes_both_records_or_none(shop: ModuleType, broker: TestBroker) -> None:
    async def requests() -> list[int]:
        transport = httpx2.ASGITransport(app=shop.app)
        async with (
            shop.app.router.lifespan_context(shop.app),
            httpx2.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            posts = [
                client.post("/orders", json={"key": f"{n:02}", "item": "plum", "count": n % 4})
                for n in range(REQUESTS)
            ]
            return [answer.status_code for answer in await asyncio.gather(*posts)]

    statuses = asyncio.run(requests())
    sold = [n for n in range(REQUESTS) if n % 4]
    assert statuses == [201 if n in sold else 422 for n in range(REQUESTS)]
    assert keys(broker, "orders") == [f"{n:02}".encode() for n in sold]
    assert keys(broker, "invoices") == keys(broker, "orders")


def test_a_producer_that_is_lost_is_replaced(shop: ModuleType, broker: TestBroker) -> None:
    async def requests() -> list[int]:
        transport = httpx2.ASGITransport(app=shop.app)
        statuses = []
        async with (
            shop.app.router.lifespan_context(shop.app),
            httpx2.AsyncClient(transport=transport, base_url="http://shop") as client,
        ):
            for n in range(3 * shop.PRODUCERS):
                if n == shop.PRODUCERS:
                    broker.fence("shop-0-0")
                body = {"key": str(n), "item": "plum", "count": 1}
                statuses.append((await client.post("/orders", json=body)).status_code)
        return statuses

    statuses = asyncio.run(requests())
    assert statuses.count(503) == 1
    assert len(keys(broker, "invoices")) == len(statuses) - 1
