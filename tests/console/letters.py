"""Topics of dead letters, as a processor writes them."""

from collections.abc import Callable, Sequence

import txn
import txn.processor
from console.conftest import Story
from support.clients import create_topic, plain_producer, send


def make_letters(
    story: Story,
    topic: str,
    values: Sequence[bytes],
    refuse: Callable[[txn.processor.Record], None],
) -> str:
    """Write records to a topic, all of which `refuse` refuses; return their dead-letter topic."""
    create_topic(story.servers, topic)
    send(plain_producer(story.servers), topic, list(values))
    txn.Processor(
        topic,
        refuse,
        dead_letter=f"{topic}-dead",
        group_id=topic,
        transactional_id=topic,
        bootstrap_servers=story.servers,
        attempts=1,
    ).run_until_caught_up(30)
    return f"{topic}-dead"
