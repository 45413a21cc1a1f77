"""Orders over HTTP: each request publishes its records in one transaction.

    KAFKA=127.0.0.1:9092 WORKER=0 uvicorn shop:app

An order and its invoice become visible together, or not at all. A pool of producers lets some
requests publish at the same time. Each process needs another WORKER, the same after each restart.
A client that had no answer cannot know the outcome: let it repeat the order with the same key, and
let readers drop a key that they have seen.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from fastapi import FastAPI, HTTPException, Request
from pydantic import BaseModel

import txn
import txn.aio

PRODUCERS = 4


class Order(BaseModel):
    """The body of a request."""

    key: str
    item: str
    count: int


class Pool:
    """Producers with transactional ids of their own; one that is lost is opened again."""

    def __init__(self, servers: str, prefix: str) -> None:
        self._servers = servers
        self._prefix = prefix
        self._free: asyncio.Queue[tuple[str, txn.aio.Producer | None]] = asyncio.Queue()

    @asynccontextmanager
    async def opened(self) -> AsyncIterator["Pool"]:
        """Open all producers, and close them at the end."""
        for n in range(PRODUCERS):
            self._free.put_nowait((f"{self._prefix}-{n}", None))
        try:
            yield self
        finally:
            async with AsyncExitStack() as stack:
                for _ in range(PRODUCERS):
                    _, producer = await self._free.get()
                    if producer is not None:
                        stack.push_async_callback(producer.close)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[txn.aio.Transaction]:
        """Run a transaction on a free producer; wait for one if all are in use."""
        name, producer = await self._free.get()
        try:
            if producer is None:
                producer = await txn.aio.Producer.open(
                    bootstrap_servers=self._servers, transactional_id=name
                )
            async with producer.transaction(timeout=10) as t:
                yield t
        except txn.TxnError as error:
            if error.action in (txn.Action.REOPEN, txn.Action.GIVE_UP) and producer is not None:
                await producer.close()
                producer = None  # the next request opens another
            raise
        finally:
            self._free.put_nowait((name, producer))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Keep the pool open while the application runs."""
    pool = Pool(os.environ["KAFKA"], f"shop-{os.environ.get('WORKER', '0')}")
    async with pool.opened() as app.state.pool:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=201)
async def order(order: Order, request: Request) -> dict[str, str]:
    """Publish an order and its invoice."""
    try:
        async with request.app.state.pool.transaction() as t:
            t.produce("orders", order.model_dump_json(), order.key)
            if order.count < 1:
                raise HTTPException(422, "nothing is ordered")  # aborts
            t.produce("invoices", f"{order.count} {order.item}", order.key)
    except txn.TxnError as error:
        raise HTTPException(503, str(error)) from error
    return {"key": order.key}
