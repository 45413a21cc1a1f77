"""Kafka Streams with exactly_once_v2: a word count and a join, stopped, killed, with standbys.

`java/WordCount.java` forwards each update of a count. So the outputs of n occurrences of a word are
the numbers 1 to n, each once and in order, over any stops and kills.
"""

import shutil
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from clients.marks import long
from clients.programs import Program, kafka_tool
from clients.test_clients import committed
from harnesses.peers.jars import NODE_4_4, STREAMS_3_9, STREAMS_4_4, class_path, java_executable
from support.clients import WAIT_S, create_topic, plain_producer, read_messages

SECONDS_MAX = 240.0
JAVA = Path(__file__).parent / "java"

WORDS = [f"w{n}" for n in range(7)]

pytestmark = [pytest.mark.java, pytest.mark.timeout(10 * SECONDS_MAX)]


def class_path_of(release: str) -> str:
    """The class path of a release of Kafka Streams."""
    if release == "3.9":
        return class_path(STREAMS_3_9)
    return f"{class_path(NODE_4_4)}:{class_path(STREAMS_4_4)}"


class WordCount:
    """The application, its topics and its instances."""

    def __init__(self, servers: str, name: str, directory: Path, release: str) -> None:
        self.servers = servers
        self.name = name
        self._directory = directory
        self._class_path = class_path_of(release)
        self.lines = 0
        for topic in ("lines", "table", "counts", "joined"):
            create_topic(servers, f"{name}-{topic}", 3)
        # A join wants a key's partition of the table to be that of Java's producer.
        producer = plain_producer(servers, partitioner="murmur2_random")
        for word in WORDS:
            producer.produce(f"{name}-table", key=word, value=f"kind-{word}")
        assert producer.flush(WAIT_S) == 0

    def send(self, lines: int) -> None:
        producer = plain_producer(self.servers)
        for number in range(lines):
            producer.produce(f"{self.name}-lines", key=f"line{number}", value=" ".join(WORDS))
        assert producer.flush(WAIT_S) == 0
        self.lines += lines

    @contextmanager
    def instance(self, number: int = 1, standbys: int = 0) -> Iterator[Program]:
        """A running instance with a state directory of its own."""
        arguments = (self.servers, self.name, str(self.state(number)), str(standbys))
        command = [
            *(java_executable(), "-Xmx256m", f"-Dlog4j2.configurationFile={JAVA}/log4j2.yaml"),
            *("-cp", self._class_path, str(JAVA / "WordCount.java"), *arguments),
        ]
        with Program(command, self._directory / f"instance{number}.log") as program:
            yield program

    def state(self, number: int = 1) -> Path:
        return self._directory / f"state{number}"

    def found(self, topic: str, isolation: str = "read_committed") -> dict[str, list[str]]:
        """The outputs of each word, in order."""
        outputs = defaultdict(list)
        for message in read_messages(self.servers, f"{self.name}-{topic}", isolation=isolation):
            outputs[(message.key() or b"").decode()].append((message.value() or b"").decode())
        return outputs

    def counted(self) -> int:
        """The number of lines that the committed counts of every word have reached."""
        joined = self.found("joined")
        return min(len(joined[word]) for word in WORDS)

    def check(self) -> None:
        """Every number of each word has come out once, in order, and joined."""
        numbers = range(1, self.lines + 1)
        assert self.found("counts") == {word: [str(n) for n in numbers] for word in WORDS}
        joined = {word: [f"kind-{word}={n}" for n in numbers] for word in WORDS}
        assert self.found("joined") == joined


@pytest.mark.parametrize("release", ["4.4", pytest.param("3.9", marks=long)])
def test_P1_P3_a_word_count_goes_on_from_its_changelogs_and_is_reset(
    release: str, servers: str, name: str, tmp_path: Path
) -> None:
    count = WordCount(servers, name, tmp_path, release)
    for _ in range(2):
        count.send(20)
        with count.instance() as program:
            program.until_reached(count.lines, count.counted)
            program.stop()
        count.check()
        shutil.rmtree(count.state())

    inputs = f"{name}-lines,{name}-table"
    told = kafka_tool(
        *("org.apache.kafka.tools.StreamsResetter", "--bootstrap-server", servers),
        *("--application-id", name, "--input-topics", inputs, "--force"),
    )
    assert "Done." in told
    topics = AdminClient({"bootstrap.servers": servers}).list_topics(timeout=WAIT_S).topics
    left = {f"{name}-{topic}" for topic in ("lines", "table", "counts", "joined")}
    assert {topic for topic in topics if topic.startswith(name)} == left
    assert set(committed(servers, name).values()) == {0}


@long
@pytest.mark.parametrize("release", ["4.4", "3.9"])
def test_P1_P3_killed_instances_with_standbys_count_each_word_once(
    release: str, servers: str, name: str, tmp_path: Path
) -> None:
    """Each kill leaves an open transaction; the other instance or the next one goes on."""
    kills = 6
    count = WordCount(servers, name, tmp_path, release)
    with ExitStack() as stack:
        running = [stack.enter_context(count.instance(n, standbys=1)) for n in (0, 1)]
        for kill in range(kills):
            before = count.counted()
            count.send(200)
            running[kill % 2].until_reached(before + 1, count.counted)
            running[kill % 2].kill()
            if kill == kills // 2:
                running[1 - kill % 2].kill()
                running[1 - kill % 2] = stack.enter_context(
                    count.instance(1 - kill % 2, standbys=1)
                )
            running[kill % 2] = stack.enter_context(count.instance(kill % 2, standbys=1))
        running[0].until_reached(count.lines, count.counted)
    count.check()
