"""A run as data: the clients, their actions, the faults and their times. A seed makes one.

All randomness of a plan is settled here. Chance while a plan runs (the time of a message or a sync)
comes from streams of numbers that belong to one connection or one life of the broker. So leaving
out a part of a plan changes as little of the rest as possible.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sim.agenda import US_PER_MS, US_PER_S
from sim.clients import Script, ScriptedTransaction
from sim.history import Place
from sim.network import NetworkFault
from sim.upgrades import LEFT
from txn.broker.host import Durability

PLACES: Final[tuple[Place, ...]] = (("source", 0), ("source", 1), ("sink", 0), ("sink", 1))
INTERNAL_PLACES: Final[tuple[Place, ...]] = tuple(
    (topic, index) for topic in ("__transaction_state", "__consumer_offsets") for index in (0, 1)
)
METADATA_PLACE: Final[Place] = ("__cluster_metadata", 0)
COPIER_TIMEOUT_MS: Final = 5_000
"""Longer than a copier is ever slow, or its transaction would be over before it goes on."""
FROM_THE_START: Final = -1
"""A fault at this time counts its operations from the first start of the broker."""
SHORT_MEMORY: Final = (
    ("transactional.id.expiration.ms", 600),
    ("transaction.remove.expired.transaction.cleanup.interval.ms", 200),
)
"""Transactional ids are forgotten soon."""
CLEANER_POWER_PART: Final = 0.03
"""The part of all seeds in which the cleaner passes all the time and the power fails; a run of it
takes three times the CPU of another one.
"""
FAULTS_END_US: Final = 6 * US_PER_S
"""Time after which no more faults happen."""


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """Something that happens to the broker or its disk.

    `kind` is "crash" (the process dies), "power" (the machine goes down), "cache" (the process dies
    and the storage loses its cache, while the machine goes on), "full" (writes to one log fail for
    a while), "unsyncable" (its next sync fails), "compact" (the cleaner passes one),
    "clock" (the time of day is set), or "resign" (the broker gives every shard of the transaction
    coordinator away and gets it back). It can also be "flip" (a bit of one log is wrong; the
    process dies, too, or nobody would look), or "unmark" (the process dies, and a marker is gone
    that the coordinator had completed).
    """

    kind: str
    at_us: int
    operations: int = 0
    """Dies at this boundary between two operations on the disk, counted from `at_us`; 0: then."""
    down_us: int = 0
    """Time for which it stays down, the log stays full, or the cleaner works; for a clock, the
    change.
    """
    in_recovery: int | None = None
    """The next process dies, too, at this boundary of its recovery."""
    bias: str = "any"
    """A power failure or a lost cache takes "all", "none", or "any" part of the unsynced data.

    A flip is "believed" (below the recovery point, so found by a reader there) or "scanned" (found
    by the next start); or "at rest": believed, and nobody dies of it.
    """
    batch: int = 0
    """In which batch a bit is wrong, counted round and round; how long segments to clean are."""
    place: Place = ("source", 0)
    """For "power": if it is a coordinator's, a bit of its log is wrong afterwards."""

    def __str__(self) -> str:
        at = f"{self.kind} at {self.at_us / US_PER_S:.3f} s"
        match self.kind:
            case "crash" | "power" | "cache":
                boundary = f", {self.operations} boundaries later" if self.operations else ""
                again = "" if self.in_recovery is None else f", again {self.in_recovery} into it"
                lost = "" if self.kind == "crash" else f", unsynced lost: {self.bias}"
                return f"{at}{boundary}{lost}{again}"
            case "resign":
                return f"{at}: for {self.down_us} µs"
            case "clock":
                return f"{at}: set by {self.down_us // US_PER_S} s"
            case "flip":
                return f"{at}: {self.place[0]}-{self.place[1]}, {self.bias}"
            case _:
                return f"{at}: {self.place[0]}-{self.place[1]}"


@dataclass(frozen=True, slots=True)
class SimPlan:
    """One run."""

    seed: int
    durability: Durability
    scripts: tuple[Script, ...]
    faults: tuple[PlannedFault, ...]
    network: tuple[NetworkFault, ...]
    first_epoch: int | None = None
    """Transactional ids have a long history: their epochs begin here."""
    settings: tuple[tuple[str, int], ...] = ()
    """Settings of the broker."""

    def size(self) -> int:
        """The length of the plan for its reader."""
        steps = sum(1 + len(script.transactions) for script in self.scripts)
        return steps + len(self.faults) + len(self.network)


def make_plan(seed: int) -> SimPlan:
    """The plan of a seed."""
    if random.Random(f"cleaner and power of {seed}").random() < CLEANER_POWER_PART:
        return make_cleaner_power_plan(seed)
    chance = random.Random(seed)
    durability = chance.choices(
        (Durability.PROCESS, Durability.COMMIT, Durability.ALWAYS), (4, 5, 1)
    )[0]
    scripts = _scripts(chance)
    if chance.random() < 0.3:
        scripts = (*_only_transactions_into_the_source(scripts), *_copiers(chance))
    faults = [_fault(chance, durability) for _ in range(chance.choice((0, 1, 1, 2, 3)))]
    network = [_network_fault(chance, scripts) for _ in range(chance.choice((0, 1, 2, 4)))]
    first_epoch = chance.choice((32_763, 32_764, 32_765, 32_766)) if chance.random() < 0.1 else None
    has_copiers = any(script.kind.startswith("copy") for script in scripts)
    if chance.random() < 0.2:
        scripts = (*scripts, *_two_phase(chance))
    if chance.random() < 0.2:
        scripts = (*scripts, _aborter(chance, has_copiers=has_copiers))
    if chance.random() < 0.2 and not has_copiers:
        scripts = (*scripts, _deleter(chance))
    if chance.random() < 0.2:
        faults.append(_flip(chance, has_copiers=has_copiers))
    if chance.random() < 0.2:
        faults += [_compaction(chance) for _ in range(3)]
    if not has_copiers and not any(script.kind == "delete" for script in scripts):
        faults += _cleanings(random.Random(f"cleaner of {seed}"))
    faults += _clock_steps(random.Random(f"clock of {seed}"))
    if durability is not Durability.PROCESS:
        faults += _lost_caches(random.Random(f"cache of {seed}"))
    own = random.Random(f"purger of {seed}")
    if own.random() < 0.15:
        purger, unanswered = _purger(own)
        scripts, network = (*scripts, purger), [*network, *unanswered]
    own = random.Random(f"upgrade of {seed}")
    if own.random() < 0.12:
        upgrade, unlucky = _upgrade(own, own.choice((1, 2)), "upgrade")
        scripts, network = (*scripts, upgrade), [*network, *unlucky]
    return SimPlan(
        seed,
        durability,
        scripts,
        tuple(sorted(faults, key=lambda fault: fault.at_us)),
        tuple(network),
        first_epoch,
        SHORT_MEMORY if chance.random() < 0.15 else (),
    )


def make_copier_plan(seed: int) -> SimPlan:
    """A plan in which nothing fails, and copiers take over from each other all the time."""
    chance = random.Random(seed)
    writes = tuple((place, 2) for place in PLACES[:2])
    steps = tuple(ScriptedTransaction(writes, "commit", 500 * US_PER_MS) for _ in range(8))
    writer = Script("tv2-0", "tv2", "pay", 0, steps)
    rounds = (ScriptedTransaction((), "commit"),) * 8
    copiers = tuple(
        Script(
            f"copy{1 + seed % 2}-{number}",
            f"copy{1 + seed % 2}",
            f"copy-{number}",
            at,
            rounds,
            COPIER_TIMEOUT_MS,
        )
        for number, at in enumerate((10_000, chance.choice((500_000, 1_500_000, 2_500_000))))
    )
    return SimPlan(seed, Durability.PROCESS, (writer, *copiers), (), ())


def make_late_plan(seed: int) -> SimPlan:
    """A plan in which nothing fails but connections of one TV1 client, with requests on them."""
    chance = random.Random(seed)
    steps = tuple(
        ScriptedTransaction(tuple((place, 1) for place in PLACES[:2]), end, 100 * US_PER_MS)
        for end in ("commit", "commit", "abort", "commit", "abort", "commit", "abort", "abort")
    )
    writer = Script("tv1-0", "tv1", "pay", 0, steps, timeout_ms=5_000)
    late = tuple(
        NetworkFault("tv1-0", chance.randrange(2, 40), "late", chance.choice((1_000, 100_000)))
        for _ in range(4)
    )
    return SimPlan(seed, Durability.PROCESS, (writer,), (), late)


def make_two_phase_plan(seed: int) -> SimPlan:
    """A plan without faults, and instances leave transactions that another system decides on."""
    chance = random.Random(seed)
    steps = tuple(
        ScriptedTransaction(
            tuple((place, 1) for place in PLACES[:2]), end, chance.choice((0, 2_000_000))
        )
        for end in ("commit", "decided", "sleep", "restart", "decided", "abort")
    )
    scripts = tuple(
        Script(f"db-{number}", "db", "db", at_us, steps, timeout_ms=700, comes_back=True)
        for number, at_us in enumerate((0, chance.choice((1_000, 500_000))))
    )
    return SimPlan(seed, Durability.PROCESS, scripts, (), ())


def make_prepared_power_plan(seed: int) -> SimPlan:
    """A plan in which the power fails while another system decides on a prepared transaction."""
    chance = random.Random(seed)
    steps = tuple(
        ScriptedTransaction(
            tuple((place, 1) for place in PLACES[:2]), end, chance.choice((0, 200_000))
        )
        for end in ("decided", "sleep", "commit", "decided")
    )
    writer = Script("db-0", "db", "db", 0, steps, timeout_ms=700, comes_back=True)
    fault = PlannedFault(
        "power",
        FROM_THE_START,
        chance.randrange(20, 100),
        US_PER_MS,
        bias=chance.choice(("any", "all")),
    )
    return SimPlan(seed, Durability.COMMIT, (writer,), (fault,), ())


def make_prepared_refusal_plan(seed: int) -> SimPlan:
    """A plan in which a disk refuses to force a prepared transaction, perhaps at its commit.

    Another producer writes to the same partitions, so that a commit finds unsynced batches there.
    """
    chance = random.Random(seed)
    step = ScriptedTransaction(tuple((place, 1) for place in PLACES[:2]), "commit", pause_us=3_000)
    other = Script("plain-0", "plain", "", start_us=0, transactions=(step,) * 60)
    refusal = PlannedFault(
        "unsyncable",
        chance.randrange(20 * US_PER_MS, 500 * US_PER_MS),
        down_us=chance.choice((5_000, 200_000)),
        place=chance.choice(PLACES[:2]),
    )
    plan = make_prepared_power_plan(seed)
    return replace(plan, scripts=(*plan.scripts, other), faults=(refusal,))


def make_upgrade_plan(seed: int) -> SimPlan:
    """A plan in which clients come to two-phase commit; connections fail, and a process once."""
    chance = random.Random(seed)
    upgrades = [_upgrade(chance, version, name) for version, name in ((1, "pay"), (2, "ship"))]
    crash = PlannedFault("crash", chance.randrange(US_PER_S), chance.choice((0, 5)), US_PER_MS)
    return SimPlan(
        seed,
        chance.choice((Durability.PROCESS, Durability.COMMIT)),
        tuple(script for script, _ in upgrades),
        (crash,) if chance.random() < 0.5 else (),
        tuple(fault for _, faults in upgrades for fault in faults),
        chance.choice((None, None, *range(32_762, 32_767))),
    )


def make_upgrade_crash_plan(seed: int) -> SimPlan:
    """A plan in which power or a process fails when an ordinary transaction is decided on by
    another system.
    """
    chance = random.Random(seed)
    version = chance.choice((1, 2))
    left = chance.choice(("written", "more", "offsets"))
    taken_over = ScriptedTransaction(
        tuple((place, 1) for place in (*PLACES, chance.choice(PLACES))),
        chance.choice(("decided", "sleep")),
        chance.choice((200 * US_PER_MS, 2 * US_PER_S)),
        left,
    )
    following = ScriptedTransaction(((PLACES[0], 1),), "commit")
    steps = (taken_over, following)
    writer = Script(f"up{version}", f"up{version}", "pay", 0, steps, comes_back=True)
    at_us, operations = chance.choice(
        ((FROM_THE_START, chance.randrange(20, 100)), (chance.randrange(50_000, US_PER_S), 0))
    )
    kind, bias = chance.choice(("power", "crash")), chance.choice(("any", "all"))
    fault = PlannedFault(kind, at_us, operations, US_PER_MS, bias=bias)
    return SimPlan(seed, Durability.COMMIT, (writer,), (fault,), ())


def make_unmark_plan(seed: int) -> SimPlan:
    """A plan in which markers are gone at a start, and nothing else goes wrong.

    Under version 2: there every transaction has an epoch of its own.
    """
    chance = random.Random(seed)
    scripts = tuple(script for script in _scripts(chance) if script.kind != "tv1")
    times = sorted(chance.sample(range(5_000, US_PER_S), 3))
    faults = tuple(PlannedFault("unmark", at_us, down_us=US_PER_MS) for at_us in times)
    return SimPlan(seed, chance.choice(tuple(Durability)), scripts, faults, ())


def make_unread_power_plan(seed: int) -> SimPlan:
    """A plan in which the power fails, and a log of the transaction coordinator is damaged."""
    chance = random.Random(seed)
    power = PlannedFault(
        "power",
        FROM_THE_START,
        chance.randrange(100, 300),
        US_PER_MS,
        bias="all",
        place=chance.choice([p for p in INTERNAL_PLACES if p[0] == "__transaction_state"]),
    )
    return SimPlan(seed, Durability.COMMIT, _scripts(chance), (power,), ())


def make_clock_plan(seed: int) -> SimPlan:
    """A plan in which the time of day is set back, and the broker may die afterwards."""
    chance = random.Random(seed)
    at_us = chance.randrange(200 * US_PER_MS)
    back = PlannedFault("clock", at_us, down_us=-3_600 * US_PER_S)
    crash = PlannedFault("crash", at_us + chance.randrange(US_PER_S), down_us=100)
    faults = (back, crash) if chance.random() < 0.5 else (back,)
    return SimPlan(seed, Durability.COMMIT, _scripts(chance), faults, ())


def make_election_plan(seed: int) -> SimPlan:
    """A plan as any, in which the broker resigns as transaction coordinator now and then."""
    chance = random.Random(seed)
    resignations = (
        PlannedFault(
            "resign",
            int(FAULTS_END_US * chance.random() ** 3),
            down_us=chance.choice((0, 1_000, 50 * US_PER_MS, US_PER_S)),
        )
        for _ in range(chance.randrange(2, 12))
    )
    plan = make_plan(seed)
    faults = sorted((*plan.faults, *resignations), key=lambda fault: fault.at_us)
    return replace(plan, faults=tuple(faults))


def make_operator_plan(seed: int) -> SimPlan:
    """A plan in which nothing fails, and operators abort and delete all the time."""
    chance = random.Random(seed)
    steps = tuple(
        ScriptedTransaction(tuple((place, 2) for place in PLACES * 2), end, 20_000)
        for end in ("commit", "abort", "sleep", "commit", "sleep", "abort", "sleep")
    )
    writers = tuple(
        Script(f"tv{1 + number}-0", f"tv{1 + number}", f"pay-{number}", 0, steps, comes_back=True)
        for number in (0, 1)
    )
    looks = tuple(
        ScriptedTransaction(((chance.choice(PLACES), 1),), "abort", 1_000) for _ in range(20)
    )
    hanging = ScriptedTransaction(((chance.choice(PLACES), 1),), "hanging")
    aborter = Script("operator", "abort", "", 1_000, (*looks, hanging))
    deletions = tuple(
        ScriptedTransaction(((chance.choice(PLACES), 1),), "delete", chance.choice((1_000, 10_000)))
        for _ in range(30)
    )
    deleter = Script("deleter", "delete", "", 2_000, deletions)
    return SimPlan(seed, Durability.PROCESS, (*writers, aborter, deleter), (), ())


def make_purger_plan(seed: int) -> SimPlan:
    """A plan in which nothing fails but answers to a client that does not wait for them."""
    script, faults = _purger(random.Random(seed))
    return SimPlan(seed, Durability.PROCESS, (script,), (), tuple(faults))


def make_cleaner_plan(seed: int) -> SimPlan:
    """A plan in which the cleaner passes all the time, and the broker dies once."""
    chance = random.Random(seed)
    places = PLACES[:2]
    writers = tuple(
        Script(
            f"{kind}-{number}",
            kind,
            f"pay-{number}",
            1_000 * number,
            tuple(
                ScriptedTransaction(
                    tuple((chance.choice(places), chance.choice((1, 2))) for _ in range(4)),
                    chance.choice(("commit", "commit", "abort", "abort", "sleep")),
                    chance.choice((0, 20_000, 400_000)),
                )
                for _ in range(8)
            ),
            comes_back=True,
        )
        for number, kind in enumerate(("tv1", "tv2", "plain"))
    )
    passes = tuple(
        PlannedFault(
            "compact",
            at_us,
            down_us=chance.choice((0, 1_000, 50_000)),
            batch=chance.randrange(4),
            place=chance.choice(places),
        )
        for at_us in range(20_000, FAULTS_END_US // 2, 100_000)
    )
    crash = PlannedFault(
        "crash", chance.randrange(FAULTS_END_US // 2), chance.choice((0, 5)), down_us=1_000
    )
    faults = tuple(sorted((*passes, crash), key=lambda fault: fault.at_us))
    return SimPlan(seed, Durability.PROCESS, writers, faults, ())


def make_cleaner_power_plan(seed: int) -> SimPlan:
    """A plan in which the cleaner passes all the time, and the power fails once."""
    plan = make_cleaner_plan(seed)
    faults = tuple(
        replace(fault, kind="power", bias="any") if fault.kind == "crash" else fault
        for fault in plan.faults
    )
    return replace(plan, durability=Durability.COMMIT, faults=faults)


def make_power_plan(seed: int) -> SimPlan:
    """A plan in which the power fails in the midst of commits."""
    chance = random.Random(seed)
    steps = (ScriptedTransaction(tuple((place, 1) for place in PLACES[:2]), "commit"),) * 6
    writers = tuple(
        Script(f"tv{1 + number}-0", f"tv{1 + number}", f"pay-{number}", 0, steps)
        for number in (0, 1)
    )
    fault = PlannedFault("power", FROM_THE_START, chance.randrange(20, 460), US_PER_MS)
    return SimPlan(seed, Durability.COMMIT, writers, (fault,), ())


def make_lost_cache_plan(seed: int) -> SimPlan:
    """A plan in which the storage loses its cache in the midst of commits."""
    return _with_lost_cache(make_power_plan(seed))


def make_two_lost_caches_plan(seed: int) -> SimPlan:
    """A plan in which it loses its cache again in the start after that."""
    return _with_lost_cache(make_two_power_plan(seed))


def make_cleaned_lost_cache_plan(seed: int) -> SimPlan:
    """A plan in which it loses its cache just after the cleaner passed `__transaction_state`.

    The cleaner removes the Prepares whose markers were lost, so only later records tell of them.
    """
    chance = random.Random(seed)
    step = ScriptedTransaction
    writers = tuple(
        Script(
            f"tv{kind}-{number}",
            f"tv{kind}",
            f"pay-{number}",
            chance.randrange(5_000),
            tuple(
                step(((PLACES[0], 1),), chance.choice(("commit", "commit", "purge", "abort")))
                for _ in range(12)
            ),
        )
        for number, kind in enumerate((1, 1, 2, 2))
    )
    lost_us = chance.randrange(60_000, 240_000)
    passes = tuple(
        PlannedFault("compact", lost_us - chance.randrange(4_000), batch=batch, place=place)
        for place in INTERNAL_PLACES[:2]
        for batch in (0, chance.randrange(4))
    )
    faults = sorted(passes, key=lambda fault: fault.at_us)
    lost = PlannedFault("cache", lost_us, down_us=US_PER_MS, bias="all")
    return SimPlan(seed, Durability.COMMIT, writers, (*faults, lost), ())


def _with_lost_cache(plan: SimPlan) -> SimPlan:
    faults = (replace(each, kind="cache") if each.kind == "power" else each for each in plan.faults)
    return replace(plan, faults=tuple(faults))


def make_first_ids_power_plan(seed: int) -> SimPlan:
    """A plan in which the power fails just after producers got the first ids of a block."""
    chance = random.Random(seed)
    step = ScriptedTransaction(((PLACES[0], 1),), "commit", 20 * US_PER_MS)
    writers = tuple(
        Script(f"plain-{number}", "plain", "", chance.randrange(5_000), (step,) * 2)
        for number in range(3)
    )
    fault = PlannedFault("power", chance.randrange(10_000), down_us=US_PER_MS)
    late = Script("plain-3", "plain", "", 100 * US_PER_MS, (step,))
    return SimPlan(seed, chance.choice(tuple(Durability)), (*writers, late), (fault,), ())


def make_two_power_plan(seed: int) -> SimPlan:
    """A plan in which the power fails in the midst of commits, and again in the start after it."""
    plan = make_power_plan(seed)
    chance = random.Random(seed + 1)
    again = replace(
        plan.faults[0],
        operations=chance.randrange(60, 300),
        in_recovery=chance.randrange(45, 80),
        bias="any",
    )
    return replace(plan, faults=(again,))


def make_passed_abort_plan(seed: int) -> SimPlan:
    """A plan in which a group passes an abort, and then power takes all that is not synced."""
    writes = ((("source", 1), 3),)
    before = (
        ScriptedTransaction(writes, "commit", 0),
        ScriptedTransaction(writes, "abort", 400 * US_PER_MS),
    )
    scripts = (
        Script("before", "tv1", "pay", 0, before),
        Script("after", "tv1", "pay", 600 * US_PER_MS, (ScriptedTransaction(writes, "commit", 0),)),
        Script("copy1-0", "copy1", "copy-1", 10_000, (ScriptedTransaction((), "commit", 0),)),
    )
    return SimPlan(
        seed, Durability.COMMIT, scripts, (PlannedFault("power", 300_000, bias="all"),), ()
    )


def make_passing_abort_plan(seed: int) -> SimPlan:
    """The same with power that fails while the group passes the abort."""
    at_us = random.Random(seed).randrange(30_000, 60_000)
    power = PlannedFault("power", at_us, bias="all")
    return replace(make_passed_abort_plan(seed), faults=(power,))


def make_damage_plan(seed: int) -> SimPlan:
    """A plan in which a bit flips, and nothing else goes wrong."""
    chance = random.Random(seed)
    scripts = _scripts(chance)
    flip = replace(
        _flip(chance, has_copiers=False),
        at_us=chance.choice((50_000, 400_000)),
        place=chance.choice((*INTERNAL_PLACES[:2], *PLACES)),
    )
    return SimPlan(seed, Durability.PROCESS, scripts, (flip,), ())


def _scripts(chance: random.Random) -> tuple[Script, ...]:
    scripts = []
    for number in range(chance.choice((1, 2, 2, 3))):
        kind = chance.choice(("tv1", "tv1", "tv2", "tv2", "plain"))
        scripts.append(
            Script(
                name=f"{kind}-{number}",
                kind=kind,
                transactional_id=chance.choice(("pay", "pay", "ship")),
                start_us=chance.choice((0, 0, 5_000, 300_000, 1_500_000)),
                transactions=tuple(
                    _transaction(chance) for _ in range(chance.choice((1, 2, 3, 5)))
                ),
                timeout_ms=chance.choice((700, 2_000, 2_000)),
                comes_back=chance.random() < 0.5,
            )
        )
    return tuple(scripts)


def _copiers(chance: random.Random) -> tuple[Script, ...]:
    copiers = []
    for number in range(chance.choice((1, 2, 2))):
        kind = chance.choice(("copy1", "copy2"))
        steps = tuple(
            ScriptedTransaction((), chance.choices(("commit", "abort", "restart"), (8, 1, 1))[0])
            for _ in range(chance.choice((3, 6)))
        )
        start_us = chance.choice((10_000, 400_000, 1_000_000))
        copiers.append(
            Script(f"{kind}-{number}", kind, f"copy-{number}", start_us, steps, COPIER_TIMEOUT_MS)
        )
    return tuple(copiers)


def _two_phase(chance: random.Random) -> tuple[Script, ...]:
    return tuple(
        Script(
            name=f"db-{number}",
            kind="db",
            transactional_id="db",
            start_us=chance.choice((0, 5_000, 300_000, 1_500_000)),
            transactions=tuple(
                replace(
                    _transaction(chance),
                    end=chance.choices(
                        ("commit", "abort", "sleep", "decided", "restart", "leave"),
                        (6, 2, 1, 3, 2, 1),
                    )[0],
                )
                for _ in range(chance.choice((1, 2, 4)))
            ),
            timeout_ms=700,
            comes_back=chance.random() < 0.5,
        )
        for number in range(chance.choice((1, 1, 2)))
    )


def _aborter(chance: random.Random, *, has_copiers: bool) -> Script:
    places = (*PLACES, *(INTERNAL_PLACES[2:] if has_copiers else ()))
    steps = [
        ScriptedTransaction(
            ((chance.choice(places), 1),), "abort", chance.choice((0, 1_000, 100_000))
        )
        for _ in range(chance.choice((1, 3, 10)))
    ]
    if chance.random() < 0.3:
        steps.append(ScriptedTransaction(((chance.choice(PLACES), 1),), "hanging"))
    start_us = chance.choice((2_000, 20_000, 300_000))
    return Script("operator", "abort", "", start_us, tuple(steps))


def _deleter(chance: random.Random) -> Script:
    steps = tuple(
        ScriptedTransaction(
            ((chance.choice(PLACES), 1),), "delete", chance.choice((0, 1_000, 400_000))
        )
        for _ in range(chance.choice((1, 3, 10)))
    )
    return Script("deleter", "delete", "", chance.choice((5_000, 50_000, 400_000)), steps)


def _flip(chance: random.Random, *, has_copiers: bool) -> PlannedFault:
    places = (*INTERNAL_PLACES, METADATA_PLACE, *(() if has_copiers else PLACES * 2))
    return PlannedFault(
        "flip",
        int(FAULTS_END_US * chance.random() ** 3),
        down_us=chance.choice((100, 50 * US_PER_MS)),
        bias=chance.choice(("believed", "scanned", "at rest")),
        place=chance.choice(places),
        batch=chance.randrange(100),
    )


def _compaction(chance: random.Random) -> PlannedFault:
    at_us = int(FAULTS_END_US * chance.random() ** 3)
    return PlannedFault("compact", at_us, place=chance.choice(INTERNAL_PLACES))


def _cleanings(own: random.Random) -> list[PlannedFault]:
    """Passes of the cleaner over data; by chances of its own, so that older seeds play on."""
    if own.random() < 0.7:
        return []
    return [
        PlannedFault(
            "compact",
            int(FAULTS_END_US * own.random() ** 2),
            down_us=own.choice((0, 1_000, 50_000)),
            batch=own.randrange(4),
            place=own.choice(PLACES),
        )
        for _ in range(own.choice((2, 8, 20)))
    ]


def _clock_steps(own: random.Random) -> list[PlannedFault]:
    """Times at which the time of day is set, back or forward."""
    if own.random() < 0.8:
        return []
    return [
        PlannedFault(
            "clock",
            int(FAULTS_END_US * own.random() ** 2),
            down_us=own.choice((-3_600, -60, -3, 3, 60)) * US_PER_S,
        )
        for _ in range(own.choice((1, 1, 2)))
    ]


def _lost_caches(own: random.Random) -> list[PlannedFault]:
    """Losses of the storage's cache; by chances of its own, so that older seeds play on."""
    if own.random() < 0.7:
        return []
    return [
        PlannedFault(
            "cache",
            int(FAULTS_END_US * own.random() ** 3),
            operations=own.choice((0, own.randrange(1, 60))),
            down_us=own.choice((100, 50 * US_PER_MS)),
            in_recovery=own.choice((None, None, own.randrange(1, 80))),
            bias=own.choice(("any", "any", "all")),
        )
        for _ in range(own.choice((1, 1, 2)))
    ]


def _purger(own: random.Random) -> tuple[Script, list[NetworkFault]]:
    """A client that aborts without answers to its requests.

    The answers are lost, the requests are not late. A batch that arrives under version 1 when the
    next transaction has begun, and has the next sequence, belongs to that one.
    """
    steps = tuple(
        ScriptedTransaction(
            tuple((own.choice(PLACES), own.choice((1, 2))) for _ in range(own.choice((1, 2)))),
            own.choice(("purge", "commit")),
        )
        for _ in range(own.choice((4, 12)))
    )
    requests = own.sample(range(2, 40), 8)
    faults = [NetworkFault("purger", each, "unanswered", 100 * US_PER_MS) for each in requests]
    script = Script("purger", "tv1", "purge", own.choice((0, 5_000)), steps, comes_back=True)
    return script, faults


def _upgrade(
    own: random.Random, version: int, transactional_id: str
) -> tuple[Script, list[NetworkFault]]:
    """A client that comes to two-phase commit while a transaction is open."""
    ordinary = [_transaction_to(own, ("commit", "abort")) for _ in range(own.choice((0, 1, 2)))]
    left = [how for how in LEFT if how != "adding" or version == 1]
    ends = ("commit", "commit", "sleep", "decided", "decided", "restart", "abort")
    taken_over = replace(
        _transaction_to(own, ends),
        left=own.choice(left),
        pause_us=own.choice((0, 200 * US_PER_MS, 2 * US_PER_S)),
    )
    following = [_transaction_to(own, ends) for _ in range(own.choice((0, 1, 2)))]
    script = Script(
        f"up{version}",
        f"up{version}",
        transactional_id,
        own.choice((0, 5_000, 300_000)),
        (*ordinary, taken_over, *following),
        timeout_ms=700,
        comes_back=own.random() < 0.5,
    )
    kinds = ("lost", "unanswered", "late", "late")
    faults = [
        NetworkFault(script.name, request, own.choice(kinds), own.choice((0, 1_000, 100_000)))
        for request in own.sample(range(1, 30), own.choice((0, 2, 4)))
    ]
    return script, faults


def _transaction_to(own: random.Random, ends: Sequence[str]) -> ScriptedTransaction:
    """A transaction with one of these ends."""
    writes = tuple(
        (own.choice(PLACES), own.choice((1, 1, 2))) for _ in range(own.choice((1, 2, 3)))
    )
    return ScriptedTransaction(writes, own.choice(ends), own.choice((0, 0, 200 * US_PER_MS)))


def _only_transactions_into_the_source(scripts: tuple[Script, ...]) -> tuple[Script, ...]:
    """Let plain writes go elsewhere: a power failure may take them, and offsets be used again."""
    return tuple(
        script
        if script.kind != "plain"
        else replace(
            script,
            transactions=tuple(
                replace(
                    step, writes=tuple((("sink", place[1]), count) for place, count in step.writes)
                )
                for step in script.transactions
            ),
        )
        for script in scripts
    )


def _transaction(chance: random.Random) -> ScriptedTransaction:
    end = chance.choices(("commit", "abort", "sleep", "leave", "restart"), (12, 4, 1, 1, 2))[0]
    return ScriptedTransaction(
        writes=tuple(
            (chance.choice(PLACES), chance.choice((1, 1, 2, 3)))
            for _ in range(chance.choice((1, 1, 2, 3, 8)))
        ),
        end=end,
        pause_us=3 * US_PER_S if end == "sleep" else chance.choice((0, 0, 1_000, 400_000)),
    )


def _fault(chance: random.Random, durability: Durability) -> PlannedFault:
    can_lose_power = durability is not Durability.PROCESS
    kind = chance.choices(
        ("crash", "power", "full", "unsyncable"), (4, 4 * can_lose_power, 1, can_lose_power)
    )[0]
    # Most of a run happens in its first moments, between the pauses.
    at_us = int(FAULTS_END_US * chance.random() ** 3)
    if kind in ("full", "unsyncable"):
        places = (*PLACES, *INTERNAL_PLACES)
        down_us = chance.choice((5_000, 200_000, US_PER_S))
        return PlannedFault(kind, at_us, down_us=down_us, place=chance.choice(places))
    return PlannedFault(
        kind,
        at_us,
        operations=chance.choice((0, chance.randrange(1, 60))),
        down_us=chance.choice((100, 50 * US_PER_MS, US_PER_S)),
        in_recovery=chance.choice((None, None, chance.randrange(1, 12))),
        bias=chance.choice(("any", "any", "all", "none")),
    )


def _network_fault(chance: random.Random, scripts: tuple[Script, ...]) -> NetworkFault:
    script = chance.choice(scripts)
    return NetworkFault(
        client=script.name,
        request=chance.randrange(1, 40),
        kind=chance.choice(("lost", "unanswered", "unanswered", "late")),
        delay_us=chance.choice((0, 1_000, 100_000, 600_000)),
    )


def smaller_plans(plan: SimPlan) -> "list[SimPlan]":
    """Every plan with one thing left out, the biggest things first."""
    smaller = []
    if len(plan.scripts) > 1:
        for script in plan.scripts:
            kept = tuple(other for other in plan.scripts if other is not script)
            smaller.append(replace(plan, scripts=kept))
    for number in range(len(plan.faults)):
        smaller.append(replace(plan, faults=_without(plan.faults, number)))
    for number in range(len(plan.network)):
        smaller.append(replace(plan, network=_without(plan.network, number)))
    if plan.first_epoch is not None:
        smaller.append(replace(plan, first_epoch=None))
    if plan.settings:
        smaller.append(replace(plan, settings=()))
    for which, script in enumerate(plan.scripts):
        for simpler in _simpler_scripts(script):
            scripts = (*plan.scripts[:which], simpler, *plan.scripts[which + 1 :])
            smaller.append(replace(plan, scripts=scripts))
    for number, fault in enumerate(plan.faults):
        if fault.in_recovery is not None:
            simpler_fault = replace(fault, in_recovery=None)
            faults = (*plan.faults[:number], simpler_fault, *plan.faults[number + 1 :])
            smaller.append(replace(plan, faults=faults))
    return smaller


def _simpler_scripts(script: Script) -> "list[Script]":
    simpler = []
    steps = script.transactions
    if len(steps) > 1:
        simpler += [
            replace(script, transactions=_without(steps, number)) for number in range(len(steps))
        ]
    for number, step in enumerate(steps):
        if len(step.writes) > 1:
            simpler += [
                replace(
                    script,
                    transactions=(
                        *steps[:number],
                        replace(step, writes=_without(step.writes, which)),
                        *steps[number + 1 :],
                    ),
                )
                for which in range(len(step.writes))
            ]
    return simpler


def _without(items: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    return items[:number] + items[number + 1 :]
