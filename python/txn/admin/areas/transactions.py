"""`cluster.transactions`: lists, describes, explains and ends transactions, as `txn explain` does.

Source of all: KIP-664, KIP-98, KIP-360. `txn.explain.abort` has the two ways to end a transaction.
"""

from collections.abc import Collection, Sequence

from txn.admin.cluster import RunningCluster
from txn.cluster.facts import Owner
from txn.coordinator.transaction.states import TxnState
from txn.explain import abort, questions
from txn.explain.abort import AbortPlan, NothingOpen
from txn.explain.questions import DescribedTransaction, Explanation, HoldingTransaction
from txn.identifiers import TopicPartition


class Transactions:
    """The transactions of a cluster. Every method may raise RetriableError: no broker answers."""

    def __init__(self, running: RunningCluster) -> None:
        self._running = running

    def list(
        self,
        *,
        states: Collection[TxnState] = (),
        longer_than_ms: int | None = None,
        prefix: str = "",
    ) -> Sequence[Owner]:
        """Return transactional ids: those with an open transaction first, the oldest first.

        Args:
            states: Only ids in one of these states; empty: in any.
            longer_than_ms: Only ids whose transaction is open for longer, in milliseconds.
            prefix: Only ids that begin with this.
        """
        return questions.listed(
            self._running, states=states, longer_than_ms=longer_than_ms, prefix=prefix
        )

    def describe(self, transactional_id: str) -> DescribedTransaction:
        """Return the state of an id, and the history of its newest transaction.

        Raises:
            ConfigError: no coordinator knows the id; the message has the nearest one.
        """
        self._running.refresh()
        return questions.described(self._running, transactional_id)

    def find_hanging(self, topics: Collection[str] | None = None) -> Sequence[HoldingTransaction]:
        """Find transactions that hold readers back and will not end by themselves in time.

        These are transactions that no coordinator knows, those past their timeout, and decided
        ones whose marker does not arrive. Each is checked twice.

        Args:
            topics: Where to search: topics, or partitions as `orders-3`; None: everywhere.

        Raises:
            ConfigError: a topic does not exist.
            RejectedError: the user may not read one of the topics.
        """
        return questions.findings(self._running, self._partitions(topics))

    def explain(self, topics: Collection[str]) -> Sequence[Explanation]:
        """Tell for each partition which transactions hold its read_committed readers back.

        Args:
            topics: Topics, or partitions as `orders-3`.

        Raises:
            ConfigError: a topic does not exist.
        """
        return questions.explain(self._running, self._partitions(topics))

    def plan_abort(self, transactional_id: str) -> AbortPlan | NothingOpen:
        """Plan to abort the open transaction of an id, and to fence its producer.

        This is safe: the coordinator aborts the whole transaction. Read `what` and `consequences`
        of the plan, then call `abort`.

        Raises:
            ConfigError: the id is unknown.
            RejectedError: the transaction is decided already, or belongs to a two-phase commit.
        """
        return abort.plan_by_id(self._running, transactional_id)

    def plan_abort_at(
        self, partition: TopicPartition, first_offset: int, *, despite_commit: bool = False
    ) -> AbortPlan:
        """Plan to abort a transaction that hangs on one partition; `find_hanging` names it.

        Args:
            partition: (topic, partition).
            first_offset: The first offset of the transaction there.
            despite_commit: Also a transaction that its coordinator committed, or may have. Its
                records are lost to readers then.

        Raises:
            RejectedError: no transaction is open since there, or its coordinator knows it.
        """
        self._running.refresh()
        return abort.plan_by_offset(
            self._running, partition, first_offset, despite_commit=despite_commit
        )

    def abort(self, plan: AbortPlan) -> str:
        """Carry out a plan that still fits; return a sentence about the steps.

        The plan is made anew first. Nothing is aborted if another transaction is open by now.

        Raises:
            RejectedError: the transaction ended meanwhile, was committed, or the user may not.
        """
        return abort.carry_out(self._running, plan)

    def _partitions(self, topics: Collection[str] | None) -> Sequence[TopicPartition]:
        self._running.refresh()
        if topics is None:
            return questions.all_partitions(self._running)
        named = (self._running.partitions(name) for name in topics)
        return sorted({each for partitions in named for each in partitions})
