"""The programs of `examples/spark/` as tests see them: an input, and the output it must have.

An oracle is plain Python over the records that were sent. It knows nothing of batches and kills.
"Once the opening is through" a watermark is known, so later records can be late for certain.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from confluent_kafka import Message

ROWS = 24
"""Records of one bite; about as many of a pattern's main input."""

DAY = datetime(2026, 5, 1, 10, tzinfo=UTC)
LATER = timedelta(hours=10)
"""A watermark that follows an event so much later has passed all that came before."""

DELAY = WINDOW = timedelta(minutes=10)
STEP, JITTER = timedelta(seconds=15), 120
"""Bites follow each other by a step, and within one records are older by up to this many seconds.
Twenty bites stay within the delay, so none of their records is late, however batches are cut."""

PAYMENT_SPAN = timedelta(hours=1)


class Record(NamedTuple):
    """A record of an input; topics are named by the option of the program."""

    topic: str
    partition: int
    key: str | None
    value: dict[str, Any] | None


Bite = list[Record]
Outputs = Mapping[str, Sequence[Message]]
Expected = dict[str, Counter[str]]
"""Records that an output must have, by the option that names it, as `text_of` gives them."""


@dataclass(frozen=True)
class Fed:
    """Records sent so far."""

    opening: Bite = field(default_factory=list)
    """They were through before the others were sent."""
    others: Bite = field(default_factory=list)

    @property
    def all(self) -> Bite:
        return self.opening + self.others


@dataclass(frozen=True)
class Pattern:
    """A program with its topics, its input and its oracle."""

    program: str
    inputs: Mapping[str, int]
    """Partitions by the option that names the topic."""
    outputs: Sequence[str]
    bite: Callable[[int], Bite]
    expected: Callable[[Fed, Outputs], Expected]
    opening: Sequence[Bite] = ()
    closing: Sequence[Record] = ()
    """Makes windows close; its own results need not come."""
    streams: Sequence[str] = ("input",)
    """The inputs that are read as streams."""
    complaints: Callable[[Outputs], list[str]] = lambda _: []
    """Faults that a count of records does not show."""


def text_of(message: Message) -> str:
    """A record of an output, with a value in JSON's shortest form."""
    key, value = message.key(), (message.value() or b"null").decode()
    content = json.loads(value) if value[0] in "{[n" else value
    return text(None if key is None else key.decode(), content)


def text(key: str | None, value: Any) -> str:
    return f"{key} {json.dumps(value, separators=(',', ':'))}"


def instant(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z")


def time_of(value: Mapping[str, Any] | None) -> datetime:
    assert value is not None
    return datetime.fromisoformat(value["time"])


def window_end(time: datetime) -> datetime:
    return time - (time - DAY) % WINDOW + WINDOW


def plain_orders(number: int) -> Iterator[tuple[int, int]]:
    """(partition, id) of the orders of a bite."""
    for row in range(ROWS):
        yield row % 2, number * ROWS + row


def moments(number: int) -> Iterator[tuple[int, datetime]]:
    """(id, time) of the events of a bite, after `LATER` and never late."""
    for _, event in plain_orders(number):
        older = timedelta(seconds=event * 37 % JITTER)
        yield event, DAY + LATER + number * STEP - older


def early(count: int) -> Iterator[tuple[int, datetime]]:
    """(id, time) of the events of an opening, two minutes apart; ids from a million."""
    for row in range(count):
        yield 1_000_000 + row, DAY + row * timedelta(minutes=2)


# ---------------------------------------------------------------- stateless


def orders_with_amount(number: int) -> Bite:
    return [
        Record(
            "input",
            partition,
            None,
            {"id": order, "customer": f"c{order % 7}", "amount": order * 7 % 400 / 2},
        )
        for partition, order in plain_orders(number)
    ]


def large_orders(fed: Fed, _: Outputs) -> Expected:
    values = [record.value or {} for record in fed.all]
    return {
        "output": Counter(
            text(value["customer"], {"id": value["id"], "cents": int(value["amount"] * 100)})
            for value in values
            if value["amount"] >= 100
        )
    }


def orders_of_customers(number: int) -> Bite:
    return [
        Record(
            "input", partition, None, {"id": order, "customer": f"c{order % 7}", "from": partition}
        )
        for partition, order in plain_orders(number)
    ]


def under_their_customer(fed: Fed, _: Outputs) -> Expected:
    return {"output": Counter(text((r.value or {})["customer"], r.value) for r in fed.all)}


def out_of_place(outputs: Outputs) -> list[str]:
    """Customers in two partitions, and orders of one input partition in another order."""
    places = {(message.key(), message.partition()) for message in outputs["output"]}
    found = [
        f"{key!r} is in two partitions" for key, n in Counter(k for k, _ in places).items() if n > 1
    ]
    last: dict[tuple[str, int], int] = {}
    for message in outputs["output"]:
        value = json.loads(message.value() or b"")
        of = (value["customer"], value["from"])
        if last.get(of, -1) > value["id"]:
            found.append(f"order {value['id']} of {of} comes after {last[of]}")
        last[of] = value["id"]
    return found


def keyed_records(number: int) -> Bite:
    return [Record("input", p, f"k{order % 5}", {"id": order}) for p, order in plain_orders(number)]


def as_they_were(fed: Fed, _: Outputs) -> Expected:
    return {"output": Counter(text(r.key, r.value) for r in fed.all)}


def orders_without_some_amounts(number: int) -> Bite:
    return [
        Record(
            "input",
            p,
            f"k{order % 5}",
            {"id": order} | ({} if order % 3 == 0 else {"amount": order}),
        )
        for p, order in plain_orders(number)
    ]


def routed_and_archived(fed: Fed, _: Outputs) -> Expected:
    found: Expected = {"valid": Counter(), "invalid": Counter(), "archive": Counter()}
    for record in fed.all:
        line = text(record.key, record.value)
        found["valid" if "amount" in (record.value or {}) else "invalid"][line] += 1
        found["archive"][line] += 1
    return found


# ---------------------------------------------------------------- the table that changes


def changes_and_orders(number: int) -> Bite:
    """Some customers move, one is deleted, then all of them order."""
    changes = [
        Record(
            "table", 0, f"c{c}", None if (c + number) % 5 == 0 else {"city": f"city-{number}-{c}"}
        )
        for c in range(7)
        if (c + number) % 2 == 0
    ]
    orders = [
        Record("input", p, None, {"id": order, "customer": f"c{order % 8}"})  # c7 is unknown
        for p, order in plain_orders(number)
    ]
    return changes + orders


def with_a_city_of_then_or_later(fed: Fed, outputs: Outputs) -> Expected:
    """An order may meet any state of its customer that it found, or that came later."""
    states: dict[str, list[str | None]] = defaultdict(lambda: [None])
    allowed: dict[str, tuple[str, int]] = {}
    for record in fed.all:
        value = record.value or {}
        if record.topic == "table":
            assert record.key is not None
            states[record.key].append(value.get("city"))
        else:
            customer = value["customer"]
            allowed[value["id"]] = (customer, len(states[customer]) - 1)
    seen = {text_of(message) for message in outputs["output"]}
    expected: Counter[str] = Counter()
    for order, (customer, first) in allowed.items():
        possible = [
            text(customer, {"customer": customer, "id": order} | ({"city": city} if city else {}))
            for city in states[customer][first:]
        ]
        expected[next((line for line in possible if line in seen), possible[0])] += 1
    return {"output": expected}


# ---------------------------------------------------------------- the switch


def orders_by_the_hundred(number: int) -> Bite:
    return [
        Record("input", p, f"k{order % 5}", {"id": order, "amount": 100.0 * (order % 9)})
        for p, order in plain_orders(number)
    ]


def taxed_and_switched(fed: Fed, outputs: Outputs) -> Expected:
    taxes = Counter(
        text(r.key, {"id": r.value["id"], "tax": round(r.value["amount"] * 0.19, 2)})
        for r in fed.all
        if r.value is not None
    )
    topic = next((message.topic() for message in outputs["output"]), None)
    times = max(1, len(outputs["switch"]))  # it may come twice after a crash, as the program says
    return {"output": taxes, "switch": Counter({text("taxes", topic): times})}


# ---------------------------------------------------------------- windows and late events


def of_page(event: int, time: datetime, page: str | None = None) -> Record:
    value = {"page": page or f"/{event % 3}", "time": instant(time), "id": event}
    return Record("input", event % 2, None, value)


def views(number: int) -> Bite:
    late = [of_page(2_000_000 + 2 * number + n, DAY + timedelta(minutes=30)) for n in range(2)]
    return [*late, *(of_page(*moment) for moment in moments(number))]


def split_by_lateness(fed: Fed) -> tuple[Bite, Bite, datetime]:
    """Records on time, records that were late for certain, and the watermark in the end."""
    passed = max((time_of(r.value) for r in fed.opening), default=DAY) - DELAY
    late = [r for r in fed.others if window_end(time_of(r.value)) <= passed]
    on_time = [r for r in fed.all if r not in late]
    return on_time, late, max(time_of(r.value) for r in fed.all) - DELAY


def closed_windows(fed: Fed, name: str) -> Counter[tuple[str, datetime]]:
    on_time, _, watermark = split_by_lateness(fed)
    counts = Counter((r.value[name], window_end(time_of(r.value))) for r in on_time if r.value)
    return Counter({window: n for window, n in counts.items() if window[1] <= watermark})


def views_per_window(fed: Fed, _: Outputs) -> Expected:
    return {
        "output": Counter(
            text(page, {"page": page, "start": instant(end - WINDOW), "views": count})
            for (page, end), count in closed_windows(fed, "page").items()
        )
    }


def of_many_pages(record: Record) -> Record:
    value = dict(record.value or {})
    return record._replace(value={**value, "page": f"/{value['id'] % 11}"})


def three_best_pages(fed: Fed, _: Outputs) -> Expected:
    pages: dict[datetime, list[tuple[int, str]]] = defaultdict(list)
    for (page, end), count in closed_windows(fed, "page").items():
        pages[end].append((-count, page))
    found: Counter[str] = Counter()
    for end, ranking in pages.items():
        top = [{"page": page, "views": -less} for less, page in sorted(ranking)[:3]]
        start = end - WINDOW
        found[text(f"{start:%Y-%m-%d %H:%M:%S}", {"start": instant(start), "top": top})] += 1
    return {"output": found}


def of_sensor(record: Record) -> Record:
    value = dict(record.value or {})
    return record._replace(value={"sensor": f"s{value.pop('page')[1:]}", **value})


def counted_or_late(fed: Fed, _: Outputs) -> Expected:
    late = split_by_lateness(fed)[1]
    return {
        "output": Counter(
            text(sensor, {"sensor": sensor, "until": int(end.timestamp() * 1000), "count": count})
            for (sensor, end), count in closed_windows(fed, "sensor").items()
        ),
        "late": Counter(text((r.value or {})["sensor"], r.value) for r in late),
    }


# ---------------------------------------------------------------- two streams


def an_order(order: int, time: datetime) -> Record:
    return Record("orders", order % 2, None, {"id": order, "time": instant(time)})


def a_payment(order: int, time: datetime) -> Record:
    value = {"order": order, "sum": order % 50, "time": instant(time)}
    return Record("payments", order % 2, None, value)


def orders_and_payments(number: int) -> Bite:
    """Two of three orders are paid, in the next bite."""
    due = [] if number == 0 else list(moments(number - 1))
    later = timedelta(minutes=1)
    return [
        *(an_order(*moment) for moment in moments(number)),
        *(a_payment(order, time + later) for order, time in due if order % 3),
    ]


def early_orders() -> Bite:
    """One of three is paid in its hour, one after it, one not at all."""
    later = {1: timedelta(minutes=20), 2: timedelta(minutes=90)}
    return [
        *(an_order(*moment) for moment in early(12)),
        *(a_payment(o, time + later[o % 3]) for o, time in early(12) if o % 3),
    ]


def paid_or_overdue(fed: Fed, _: Outputs) -> Expected:
    orders = [r.value for r in fed.all if r.topic == "orders" and r.value]
    payments = [r.value for r in fed.all if r.topic == "payments" and r.value]
    newest = [max((time_of(v) for v in side), default=DAY) for side in (orders, payments)]
    watermark = min(newest) - DELAY
    found: Counter[str] = Counter()
    for order in orders:
        ends = time_of(order) + PAYMENT_SPAN
        paid = [
            p["sum"]
            for p in payments
            if p["order"] == order["id"] and time_of(order) <= time_of(p) <= ends
        ]
        found.update(text(str(order["id"]), {"id": order["id"], "sum": sum_}) for sum_ in paid)
        if not paid and ends < watermark:
            found[text(str(order["id"]), {"id": order["id"]})] += 1
    return {"output": found}


# ---------------------------------------------------------------- state


def payments(number: int) -> Bite:
    """Every account has its partition; more goes out than comes in, so some are refused."""
    found = []
    for _, payment in plain_orders(number):
        account = payment * 5 % 6
        amount = 60 if payment % 4 == 0 else -(payment * 13 % 45)
        value = {"id": payment, "account": f"a{account}", "amount": amount}
        found.append(Record("input", account % 2, None, value))
    return found


def decisions(fed: Fed, _: Outputs) -> Expected:
    balances: Counter[str] = Counter()
    found: Counter[str] = Counter()
    for record in fed.all:
        value = record.value or {}
        account = value["account"]
        accepted = balances[account] + value["amount"] >= 0
        balances[account] += value["amount"] if accepted else 0
        decision = {"id": value["id"], "accepted": accepted, "balance": balances[account]}
        found[text(account, decision)] += 1
    return {"output": found}


def an_event(event: int, time: datetime, copy: int = 0) -> Record:
    return Record(
        "input", (event + copy) % 2, f"k{event % 5}", {"id": f"e{event}", "time": instant(time)}
    )


def events_sent_twice(number: int) -> Bite:
    """Some events have a copy in this bite, and some of the last bite have one, too."""
    before = [] if number == 0 else list(moments(number - 1))
    return [
        *(an_event(*moment) for moment in moments(number)),
        *(an_event(*moment, copy=1) for moment in moments(number) if moment[0] % 4 == 0),
        *(an_event(*moment, copy=1) for moment in before if moment[0] % 4 == 1),
    ]


def each_id_once(fed: Fed, _: Outputs) -> Expected:
    return {"output": Counter({text(r.key, r.value): 1 for r in fed.all})}


# ---------------------------------------------------------------- all of them

TWO = {"input": 2}
ADVANCE = of_page(3_000_000, DAY + LATER, "/9")
NUDGE = of_page(3_000_001, DAY + 4 * LATER, "/9")
EARLY_VIEWS = [of_page(*moment) for moment in early(ROWS)]

PATTERNS = {
    pattern.program: pattern
    for pattern in (
        Pattern(
            "stream_join",
            {"orders": 2, "payments": 2},
            ["output"],
            orders_and_payments,
            paid_or_overdue,
            opening=[
                early_orders(),
                [an_order(3_000_000, DAY + LATER), a_payment(3_000_003, DAY + LATER)],
            ],
            closing=[an_order(3_000_006, DAY + 4 * LATER), a_payment(3_000_009, DAY + 4 * LATER)],
            streams=["orders", "payments"],
        ),
        Pattern(
            "late_events",
            TWO,
            ["output", "late"],
            lambda n: [of_sensor(r) for r in views(n)],
            counted_or_late,
            opening=[[of_sensor(r) for r in EARLY_VIEWS], [of_sensor(ADVANCE)]],
            closing=[of_sensor(NUDGE)],
        ),
        Pattern(
            "top_n",
            TWO,
            ["output"],
            lambda n: [of_many_pages(r) for r in views(n)],
            three_best_pages,
            opening=[[of_many_pages(r) for r in EARLY_VIEWS], [of_many_pages(ADVANCE)]],
            closing=[of_many_pages(NUDGE)],
        ),
        Pattern(
            "windows",
            TWO,
            ["output"],
            views,
            views_per_window,
            opening=[EARLY_VIEWS, [ADVANCE]],
            closing=[NUDGE],
        ),
        Pattern("transform_with_state", TWO, ["output"], payments, decisions),
        Pattern(
            "deduplicate",
            TWO,
            ["output"],
            events_sent_twice,
            each_id_once,
            opening=[
                [an_event(*m, copy=c) for m in early(4) for c in (0, 1)],
                [an_event(3_000_000, DAY + LATER)],
            ],
            closing=[an_event(3_000_001, DAY + 4 * LATER)],
        ),
        Pattern(
            "table_join",
            {"input": 2, "table": 1},
            ["output"],
            changes_and_orders,
            with_a_city_of_then_or_later,
        ),
        Pattern(
            "several_sinks",
            TWO,
            ["valid", "invalid", "archive"],
            orders_without_some_amounts,
            routed_and_archived,
        ),
        Pattern("reprocess", TWO, ["output", "switch"], orders_by_the_hundred, taxed_and_switched),
        Pattern("two_clusters", TWO, ["output"], keyed_records, as_they_were),
        Pattern(
            "repartition",
            TWO,
            ["output"],
            orders_of_customers,
            under_their_customer,
            complaints=out_of_place,
        ),
        Pattern("map_filter", TWO, ["output"], orders_with_amount, large_orders),
    )
}
"""The patterns by program. Those that take longest come first."""
