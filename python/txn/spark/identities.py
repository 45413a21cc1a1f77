"""Producer identities of the tasks: made by a process, used by it alone, each once.

A transactional producer must never exist twice: batches of the second would look like duplicates of
the first one's and be dropped. Spark may run a task twice, one after the other or at the same time.
Causes are retries, speculation, and stages that are started again after a lost shuffle file, where
the attempt number begins at 0 once more. So identities are not tied to tasks. A Python worker makes
its own under a random name, and reuses one only if

1. this very process made it, so no attempt elsewhere can hold it,
2. the driver handed it out for this batch, so its last transaction has ended and no decision
   waits for it, and
3. its epoch was not used before, and
4. it was made with the same timeout and the same wish for a two-phase commit.

Otherwise it makes a new one. So only this process ever asks for an epoch under a name, and only
when nothing is open there. A task of a driver that was replaced can fail, but never abort a
transaction that another task has prepared. In the steady state no task sends InitProducerId: a
worker gets its producers back with the epoch that the driver's EndTxn answered. Under transaction
version 1, where EndTxn leaves the epoch as it is, it asks for the next one.

Where the cluster allows a two-phase commit (KIP-939), the identities ask for it. Their transactions
do not time out and survive a power failure, so a decision is always carried out.
"""

import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from txn._core import KafkaError
from txn.errors import ConfigError
from txn.spark.handout import Handout
from txn.spark.kafka import TransactionalClient, code_of
from txn.spark.progress import TransactionIdentity
from txn.spark.transactional_ids import task_id
from txn.wire.error_codes import ErrorCode

NO_TWO_PHASE: Final = frozenset(
    {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
)
"""The answers of a cluster that offers no two-phase commit, or allows it not."""


@dataclass(frozen=True, slots=True)
class _Terms:
    """The options that a producer keeps for life."""

    timeout_ms: int
    is_two_phase: bool | None


class OwnIdentities:
    """The identities of this process."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._used: dict[str, tuple[TransactionIdentity, _Terms]] = {}
        """Transactional id → the newest identity that was used, and the terms it was made with."""

    def claim(
        self,
        client: TransactionalClient,
        handout: Handout,
        timeout_ms: int,
        *,
        is_two_phase: bool | None = None,
    ) -> TransactionIdentity:
        """An identity for one transaction; no other transaction gets it.

        Args:
            client: For this thread.
            handout: Of the batch.
            timeout_ms: Of the transaction, unless it is part of a two-phase commit.
            is_two_phase: Take part in a two-phase commit; None: where the cluster allows it.

        Raises:
            ConfigError: the cluster does not allow this timeout, or a two-phase commit.
            KafkaError: the cluster did not answer in time.
        """
        if self._process != os.getpid():  # forked: they are the parent's
            self._process = os.getpid()
            self._used = {}
        offered = {spare.identity.transactional_id: spare.identity for spare in handout.spares}
        terms = _Terms(timeout_ms, is_two_phase)
        identity = self._reusable(client, offered, terms)
        if identity is None:
            identity = _made(client, task_id(handout.id, secrets.token_hex(8)), terms)
        self._used[identity.transactional_id] = identity, terms
        return identity

    def _reusable(
        self,
        client: TransactionalClient,
        offered: Mapping[str, TransactionIdentity],
        terms: "_Terms",
    ) -> TransactionIdentity | None:
        for name, (used, its_terms) in self._used.items():
            identity = offered.get(name)
            if identity is None or its_terms != terms:
                continue
            if _is_newer(identity, used):
                return identity
            if identity == used and client.transaction_version < 2:
                return _made(client, name, terms)
        return None


OWN = OwnIdentities()


def _is_newer(identity: TransactionIdentity, used: TransactionIdentity) -> bool:
    """Return True if an identity comes after one that was used.

    A producer id that ran out of epochs is replaced by another one. An old one comes back
    only from a driver that was replaced; the cluster refuses it.
    """
    if identity.producer_id != used.producer_id:
        return True
    return identity.producer_epoch > used.producer_epoch


def _made(client: TransactionalClient, name: str, terms: _Terms) -> TransactionIdentity:
    timeout_ms = terms.timeout_ms
    if terms.is_two_phase is not False:
        try:
            return TransactionIdentity(
                name, *client.init_producer_id(name, timeout_ms, is_two_phase=True)
            )
        except KafkaError as error:
            if code_of(error) not in NO_TWO_PHASE:
                raise
            if terms.is_two_phase:
                raise ConfigError(
                    "the cluster allows no two-phase commit, which txn.two.phase.commit=true asks "
                    "for. It needs InitProducerId 6, transaction.two.phase.commit.enable=true and "
                    "the right TwoPhaseCommit. Allow it there, or set txn.two.phase.commit=auto",
                    option="txn.two.phase.commit",
                    value="true",
                ) from error
    try:
        return TransactionIdentity(name, *client.init_producer_id(name, timeout_ms))
    except KafkaError as error:
        if code_of(error) == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise ConfigError(
                f"the cluster refuses txn.timeout.ms={timeout_ms}: it is above its "
                "transaction.max.timeout.ms. Set txn.timeout.ms to that or less",
                option="txn.timeout.ms",
                value=timeout_ms,
            ) from error
        raise
