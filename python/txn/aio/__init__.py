"""txn for asyncio: `Producer` and `Consumer` whose waits are awaited.

    async with txn.aio.Producer(bootstrap_servers=..., transactional_id="shop-1") as producer:
        async with txn.aio.Consumer(bootstrap_servers=..., group_id="shop") as consumer:
            await consumer.subscribe(["orders"])
            async for batch in consumer:
                async with producer.transaction(consumer) as t:
                    for message in batch:
                        t.produce("invoices", message.value())

They are the objects of `txn.client` with a thread each, so rules, errors and settings are those.
What is added:

1. *One worker for each client* (`worker.py`) makes its blocking calls in order. No call gets a
   thread of its own, and an idle worker sleeps.
2. *A call of the client never ends half-way.* A cancelled task waits until a step of a transaction
   is over (`transaction.py`), interrupts an opening and a flush (`client.py`), and leaves a read.
3. *A cancelled read loses nothing* (`handover.py`): its records stay for the next read, and no
   commit covers them before.
4. *A client belongs to one event loop and one process.* Any other use is refused.
"""

from txn.aio.consumer import Consumer
from txn.aio.producer import Producer
from txn.aio.transaction import Transaction

__all__ = ["Consumer", "Producer", "Transaction"]
