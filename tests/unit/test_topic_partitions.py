"""DescribeTopicPartitions, while the topics that it describes change."""

import asyncio
import uuid
from types import SimpleNamespace
from typing import cast

from support.sessions import session
from txn.broker.apis.topic_partitions import describe_topic_partitions
from txn.broker.host import Context
from txn.broker.node import Node
from txn.broker.turns import ITEMS_PER_TURN
from txn.metadata.image import Topic
from txn.wire.api_keys import ApiKey
from txn.wire.bodies.topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)

COUNT = ITEMS_PER_TURN + 1


class Partitions:
    def __len__(self) -> int:
        return COUNT

    def leader_epoch(self, index: int) -> int:
        return 0


def test_a_topic_that_is_deleted_amid_its_description_is_described_as_it_was() -> None:
    """The number of its partitions was looked up again after others had their turn."""
    topics = {"pay": Topic("pay", uuid.UUID(int=1), COUNT)}
    partitions = {"pay": Partitions()}
    node = SimpleNamespace(
        node_id=1,
        image=SimpleNamespace(topics=topics),
        partitions=partitions,
        settings={"max.request.partition.size.limit": 2_000},
    )
    request = DescribeTopicPartitionsRequest(topics=(), response_partition_limit=2_000, cursor=None)
    context = Context(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "client", session())

    async def describe_and_delete() -> DescribeTopicPartitionsResponse:
        asked = asyncio.ensure_future(describe_topic_partitions(cast(Node, node), request, context))
        await asyncio.sleep(0)
        assert not asked.done()
        del topics["pay"], partitions["pay"]
        return await asked

    (described,) = asyncio.run(describe_and_delete()).topics
    assert (described.name, len(described.partitions)) == ("pay", COUNT)
