"""Histories that Hypothesis makes up: requests of sound and mistaken producers, in turn.

A `HistoryStep` is one request with arguments near to valid ones. Mostly it is the next one of a
sound client, sometimes the epoch, the sequence, the id or the version beside it. `Players` carries
a history out against a pair, and remembers the state that a client would have to know.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from hypothesis import strategies as st

from differential.batches import idempotent, transactional
from differential.script import NOBODY, ScriptProducer, Talk, versions

PRODUCERS: Final = 3
"""The third has the first one's transactional id and initialises before it: a zombie."""

IDS: Final = ("a", "b", "a")
STEPS_MAX: Final = 25


@dataclass(frozen=True, slots=True)
class HistoryStep:
    """One request.

    Attributes:
        what: The action, a key of `ACTIONS`.
        who: Index of the producer that asks.
        version: Of the API.
        partition: Of the topic.
        epoch_step: Added to the epoch that the producer holds.
        sequence_step: Added to the sequence that would be next.
        is_other_id: Show another producer's id.
        flag: Commit or abort; whether an identity is shown; whether offsets must be stable.
        number: An offset, a count of records.
    """

    what: str
    who: int
    version: int
    partition: int = 0
    epoch_step: int = 0
    sequence_step: int = 0
    is_other_id: bool = False
    flag: bool = True
    number: int = 1


@dataclass(slots=True)
class Player:
    """The state that one client believes in."""

    producer: ScriptProducer
    sequences: dict[int, int] = field(default_factory=dict)
    plain: ScriptProducer | None = None
    plain_sequences: dict[int, int] = field(default_factory=dict)


class Players:
    """Carries histories out. Everything they name is their own, so they cannot disturb another."""

    def __init__(self, talk: Talk, number: int, start: tuple[int, int]) -> None:
        self.talk = talk
        self.start = start
        self.ids = [talk.pair.own(f"{name}{number}") for name in IDS]
        talk.group = talk.pair.own(f"g{number}")
        self.is_tv2: dict[str, bool] = {}
        self.players = [Player(ScriptProducer(name, -1, -1)) for name in self.ids]

    def play(self, steps: list[HistoryStep]) -> None:
        """Take the steps, as far as both brokers are still in the same state."""
        for step in steps:
            ACTIONS[step.what](self, self.players[step.who], step)
            if self.is_over:
                return

    def finish(self) -> None:
        """Compare the rest, then end every transaction on both brokers."""
        if not self.is_over:
            self.talk.look(self.start)
            self.talk.describe(*sorted(set(self.ids)))
        for name in () if self.is_over else sorted(set(self.ids)):
            self.talk.init(name)

    @property
    def is_over(self) -> bool:
        pair = self.talk.pair
        return pair.has_diverged or bool(pair.differences)

    # ------------------------------------------------------------ what a step is to each API

    def _shown(self, player: Player, step: HistoryStep) -> ScriptProducer:
        """The identity that a step shows."""
        own = player.producer
        other = self.players[(step.who + 1) % PRODUCERS].producer
        producer_id = other.producer_id if step.is_other_id else own.producer_id
        epoch = max(-1, min(own.producer_epoch + step.epoch_step, 32767))
        return ScriptProducer(own.transactional_id, producer_id, epoch)

    def init(self, player: Player, step: HistoryStep) -> None:
        shown = self._shown(player, step)
        is_new = step.flag or step.version < 3
        producer = self.talk.init(
            shown.transactional_id,
            step.version,
            shown=NOBODY if is_new else shown.identity,
        )
        if producer.producer_epoch >= 0:
            player.producer = producer
            player.sequences = {}

    def add_partitions(self, player: Player, step: HistoryStep) -> None:
        self.talk.add_partitions(self._shown(player, step), (step.partition,), step.version)

    def add_offsets(self, player: Player, step: HistoryStep) -> None:
        self.talk.add_offsets(self._shown(player, step), step.version)

    def commit_offsets(self, player: Player, step: HistoryStep) -> None:
        self.talk.commit_offsets(
            self._shown(player, step), {step.partition: step.number}, step.version
        )

    def produce(self, player: Player, step: HistoryStep) -> None:
        if not step.flag:
            self._produce_plainly(player, step)
            return
        shown = self._shown(player, step)
        # One id, one client library: Kafka judges a TV2 batch by the state that an older one left
        # behind.
        wants_tv2 = step.version >= JOINS_BY_ITSELF["produce"]
        is_tv2 = self.is_tv2.setdefault(shown.transactional_id, wants_tv2)
        version = 12 + step.version % 2 if is_tv2 else 3 + step.version % 9
        sequence = max(player.sequences.get(step.partition, 0) + step.sequence_step, 0)
        batch = transactional(*shown.identity, sequence, values=(b"v",) * step.number)
        answer = self.talk.produce({step.partition: batch}, shown.transactional_id, version)
        if _is_stored(answer) and step.sequence_step >= 0:
            player.sequences[step.partition] = sequence + step.number
        if is_tv2:
            self.talk.describe(shown.transactional_id)  # where Kafka may have joined more

    def _produce_plainly(self, player: Player, step: HistoryStep) -> None:
        """An idempotent batch, by a producer id that no transaction has used."""
        player.plain = player.plain or self.talk.init(None)
        sequence = max(player.plain_sequences.get(step.partition, 0) + step.sequence_step, 0)
        batch = idempotent(*player.plain.identity, sequence, values=(b"v",) * step.number)
        answer = self.talk.produce({step.partition: batch}, None, step.version)
        if _is_stored(answer) and step.sequence_step >= 0:
            player.plain_sequences[step.partition] = sequence + step.number

    def end(self, player: Player, step: HistoryStep) -> None:
        shown = self._shown(player, step)
        answer = self.talk.end(shown, step.flag, step.version)
        if answer.get("error_code") == "none" and step.version >= 5:
            player.producer = shown
            player.sequences = {}

    def plain_offsets(self, player: Player, step: HistoryStep) -> None:
        self.talk.plain_offsets({step.partition: step.number}, step.version)

    def fetch_offsets(self, player: Player, step: HistoryStep) -> None:
        self.talk.fetch_offsets(step.version, stable=step.flag)

    def fetch(self, player: Player, step: HistoryStep) -> None:
        offset = self.start[step.partition] + step.number - 1
        self.talk.fetch({step.partition: offset}, step.version, isolation=int(step.flag))

    def list_offsets(self, player: Player, step: HistoryStep) -> None:
        self.talk.list_offsets(
            {step.partition: -1 - step.number % 2}, step.version, isolation=int(step.flag)
        )

    def delete_records(self, player: Player, step: HistoryStep) -> None:
        offset = self.start[step.partition] + step.number
        self.talk.delete_records({step.partition: offset}, step.version)

    def describe(self, player: Player, step: HistoryStep) -> None:
        self.talk.describe(*sorted(set(self.ids)))

    def describe_producers(self, player: Player, step: HistoryStep) -> None:
        self.talk.describe_producers()


def _is_stored(answer: dict[str, Any]) -> bool:
    responses = answer.get("responses") or [{}]
    told = (responses[0].get("partition_responses") or [{}])[0]
    return bool(told.get("error_code") == "none")


Action = Callable[[Players, Player, HistoryStep], None]

ACTIONS: Final[dict[str, Action]] = {
    "init": Players.init,
    "add_partitions": Players.add_partitions,
    "add_offsets": Players.add_offsets,
    "commit_offsets": Players.commit_offsets,
    "produce": Players.produce,
    "end": Players.end,
    "plain_offsets": Players.plain_offsets,
    "fetch_offsets": Players.fetch_offsets,
    "fetch": Players.fetch,
    "list_offsets": Players.list_offsets,
    "delete_records": Players.delete_records,
    "describe": Players.describe,
    "describe_producers": Players.describe_producers,
}
VERSIONS: Final[dict[str, tuple[int, ...]]] = {
    name: tuple(versions(api))
    for name, api in {
        "init": "InitProducerId",
        "add_partitions": "AddPartitionsToTxn",
        "add_offsets": "AddOffsetsToTxn",
        "commit_offsets": "TxnOffsetCommit",
        "produce": "Produce",
        "end": "EndTxn",
        "plain_offsets": "OffsetCommit",
        "fetch_offsets": "OffsetFetch",
        "fetch": "Fetch",
        "list_offsets": "ListOffsets",
        "delete_records": "DeleteRecords",
        "describe": "DescribeTransactions",
        "describe_producers": "DescribeProducers",
    }.items()
}
OFTEN: Final = ("produce", "produce", "produce", "end", "end", "init", "add_partitions")
"""Actions without which nothing happens; Hypothesis chooses among these and all."""

JOINS_BY_ITSELF: Final = {"produce": 12, "end": 5, "commit_offsets": 5, "init": 5}
"""TV2 begins with these versions."""


def _mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    """Five times in six the usual value."""
    return st.sampled_from([usual] * 5 + list(others))


@st.composite
def _step(draw: st.DrawFn) -> HistoryStep:
    what = draw(st.sampled_from([*OFTEN, *OFTEN, *ACTIONS]))
    known = VERSIONS[what]
    new_from = JOINS_BY_ITSELF.get(what, 0)
    either = [[v for v in known if v >= new_from], [v for v in known if v < new_from] or known]
    return HistoryStep(
        what,
        who=draw(st.sampled_from([0, 0, 0, 1, 2])),
        version=draw(st.sampled_from(draw(st.sampled_from(either)))),
        partition=draw(st.integers(0, 1)),
        epoch_step=draw(_mostly(0, -1, 1)),
        sequence_step=draw(_mostly(0, -1, 1, 5)),
        is_other_id=draw(_mostly(False, False, False, True)),
        flag=draw(st.booleans()) if what != "produce" else draw(_mostly(True, False)),
        number=draw(st.integers(1, 3)),
    )


def histories() -> st.SearchStrategy[list[HistoryStep]]:
    """Sequences of steps; every producer has initialised first, the zombie before its successor."""
    begun = [HistoryStep("init", who, 5) for who in reversed(range(PRODUCERS))]
    return st.lists(_step(), min_size=1, max_size=STEPS_MAX).map(lambda steps: begun + steps)
