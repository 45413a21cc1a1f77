"""Principals, access control entries and requests that nobody thought of: equal answers.

Both brokers have StandardAuthorizer and the same users, who authenticate by SASL PLAIN. A round
replaces the entries, then principals from two addresses send requests of every API and version.
Rules that are broken on purpose show that a wrong verdict is found.
"""

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from differential.access_arena import Arena, arena
from differential.access_cluster import MAY_PASS
from differential.access_requests import (
    HOSTS,
    NOT_ASKED,
    PRINCIPALS,
    REQUESTS,
    Fields,
    acl,
    drawn_acl,
)
from txn.broker.apis.access import Access
from txn.security import acls
from txn.security.acls import (
    CLUSTER_NAME,
    AclIndex,
    Operation,
    Requester,
    ResourceType,
    Verdict,
)
from txn.server.loop.server_catalog import ServerCatalog
from txn.wire.api_keys import ApiKey

pytestmark = [pytest.mark.peer, pytest.mark.timeout(0)]

EXAMPLES: Final = int(os.environ.get("TXN_DIFFERENTIAL_EXAMPLES", "0"))
"""Number of new rounds to play. 0 plays the same few each time, so that a red run says something
about the change."""
FEW: Final = 50
REQUESTS_OF_ROUND: Final = 25
ROUNDS_OF_LIAR: Final = 60


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena(tmp_path_factory.mktemp("access")) as running:
        yield running


def test_every_api_is_asked_or_asks_nobody(brokers: Arena) -> None:
    assert set(brokers.versions) == {*REQUESTS, *NOT_ASKED}


def each_version(brokers: Arena, entries: list[Fields]) -> list[str]:
    """Send one request of each API and version; return the differences."""
    brokers.give(entries)
    brokers.refused.clear()
    draw = random.Random(15)
    return [
        difference
        for key, make in REQUESTS.items()
        for version in brokers.versions[key]
        for difference in brokers.ask("ada", HOSTS[0], key, version, make(draw, version))
    ]


EVERYTHING: Final = [
    acl(ResourceType.TOPIC, "*", "User:*"),
    acl(ResourceType.GROUP, "*", "User:*"),
    acl(ResourceType.TRANSACTIONAL_ID, "*", "User:*"),
    acl(ResourceType.CLUSTER, CLUSTER_NAME, "User:*"),
]
NEVER_REFUSED: Final = {ApiKey.DESCRIBE_CLUSTER, ApiKey.LIST_GROUPS, ApiKey.LIST_TRANSACTIONS}
"""Their answers leave out the resources that may not be seen."""


def test_every_version_is_refused_alike_without_entries(brokers: Arena) -> None:
    found = each_version(brokers, [])
    assert not found, "\n".join(found)
    assert brokers.refused >= REQUESTS.keys() - NEVER_REFUSED - MAY_PASS


def test_every_version_is_answered_alike_where_everything_is_allowed(brokers: Arena) -> None:
    found = each_version(brokers, EVERYTHING)
    assert not found, "\n".join(found)
    assert brokers.refused <= {ApiKey.ADD_PARTITIONS_TO_TXN}  # if an internal topic was drawn


@pytest.mark.parametrize("operation", [Operation.DESCRIBE, Operation.READ, Operation.ALTER])
def test_every_version_is_answered_alike_with_one_operation(
    brokers: Arena, operation: Operation
) -> None:
    found = each_version(brokers, [{**entry, "operation": operation} for entry in EVERYTHING])
    assert not found, "\n".join(found)


def play(brokers: Arena, draw: random.Random) -> list[str]:
    """Play one round; return the differences, and then its entries."""
    entries = [drawn_acl(draw) for _ in range(draw.randint(1, 25))]
    brokers.give(entries)
    found = []
    for _ in range(REQUESTS_OF_ROUND):
        key: ApiKey = draw.choice([*REQUESTS])
        version = draw.choice(brokers.versions[key])
        principal, host = draw.choice(PRINCIPALS), draw.choice(HOSTS)
        found += brokers.ask(principal, host, key, version, REQUESTS[key](draw, version))
    return [*found, "with", *map(str, entries)] if found else []


def test_both_brokers_answer_alike_whatever_the_entries_are(brokers: Arena) -> None:
    rounds = Counter[str]()

    @settings(
        max_examples=EXAMPLES or FEW,
        derandomize=not EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(st.randoms(use_true_random=False))
    def plays(draw: random.Random) -> None:
        rounds["played"] += 1
        found = play(brokers, draw)
        assert not found, "\n".join(found)

    asked = brokers.asked
    plays()
    print(
        f"\n{rounds['played']} rounds, {brokers.asked - asked} requests to both brokers; "
        f"accepted: {dict(brokers.accepted)}"
    )


# ---------------------------------------------------------------- rules broken on purpose

decide: Final = AclIndex.verdict
may: Final = Access.may
Patch = pytest.MonkeyPatch


def forget_hosts(patch: Patch) -> None:
    """An entry counts for every host."""

    def verdict(
        index: AclIndex, by: Requester, operation: Operation, kind: ResourceType, name: str
    ) -> Verdict:
        found = [decide(index, by._replace(host=host), operation, kind, name) for host in HOSTS]
        return max(found)

    patch.setattr(AclIndex, "verdict", verdict)


def let_a_permission_win(patch: Patch) -> None:
    """A denial of one operation does not count where all are allowed."""

    def verdict(
        index: AclIndex, by: Requester, operation: Operation, kind: ResourceType, name: str
    ) -> Verdict:
        found = decide(index, by, operation, kind, name)
        if found is Verdict.DENIED and decide(index, by, Operation.ALL, kind, name) is ALLOWED:
            return ALLOWED
        return found

    patch.setattr(AclIndex, "verdict", verdict)


ALLOWED: Final = Verdict.ALLOWED


def imply_nothing(patch: Patch) -> None:
    """READ and WRITE do not imply DESCRIBE."""
    patch.setattr(acls, "IMPLIED_BY", {})


def see_where_it_reads(patch: Patch) -> None:
    """One rule asks for another operation: DESCRIBE on the group in place of READ."""

    def lenient(
        access: Access,
        operation: Operation,
        kind: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        if (operation, kind) == (Operation.READ, ResourceType.GROUP):
            operation = Operation.DESCRIBE
        return may(access, operation, kind, name, is_logged=is_logged)

    patch.setattr(Access, "may", lenient)


def keep_old_verdicts(patch: Patch) -> None:
    """The reactors go on by permissions of earlier entries."""
    patch.setattr(ServerCatalog, "forget_verdicts", lambda catalog: None)


@pytest.mark.parametrize(
    "broken",
    [forget_hosts, let_a_permission_win, imply_nothing, see_where_it_reads, keep_old_verdicts],
)
def test_a_broken_rule_is_found(
    brokers: Arena, monkeypatch: Patch, broken: Callable[[Patch], None]
) -> None:
    broken(monkeypatch)
    rounds = (play(brokers, random.Random(seed)) for seed in range(ROUNDS_OF_LIAR))
    assert any(rounds)
