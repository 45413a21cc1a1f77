"""The results of a run as one self-contained page: tables and bars, no script, no network."""

from collections.abc import Iterator
from html import escape
from typing import Final

from benches.cases import Case
from benches.contestants import KAFKA
from benches.results import Line, Results, shown

STYLE: Final = """
:root { color-scheme: light dark; }
:root { --txn: #2f7d6d; --kafka: #b0723c; --cold: #b0723c66; --rule: #8884; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.05rem; margin: 2.2rem 0 .4rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: right; }
th:first-child, td:first-child { text-align: left; }
.met { color: var(--txn); } .missed { color: #c0392b; font-weight: 600; }
svg { display: block; margin: .4rem 0 0; max-width: 100%; }
svg text { font-size: 12px; fill: currentColor; }
.note { color: #777; font-size: .9rem; }
"""

WIDTH, LABEL, BAR, ROW = 900, 120, 640, 20


def page(results: Results, cases: list[Case]) -> str:
    """The whole page."""
    sections = "\n".join(_section(results, case) for case in cases)
    busy = ", ".join(f"{load:.1f}" for load in results.busy)
    warning = (
        "<p class=missed>A quick run: little data, a cold peer. Not to be quoted.</p>"
        if results.is_quick
        else ""
    )
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>txn beside Apache Kafka</title>
<style>{STYLE}</style>
<h1>txn {escape(results.commit)} beside {escape(KAFKA)}</h1>
{warning}
<p>{escape(results.machine)}. Medians of {results.rounds} rounds in which the brokers took turns;
load average of the machine before each round: {busy or "not measured"}. Kafka was warmed up with
twelve million records first; <i>cold</i> is its first round. <i>Limit</i> is what this machine can
do at best, measured in the same rounds. Both brokers acknowledge from the page cache.</p>
{sections}
<h2>Limits of the machine</h2>
{_limits(results)}
<p class=note>Made by <code>make bench</code>.</p>
</html>
"""


def _section(results: Results, case: Case) -> str:
    lines = [results.line(case, figure) for figure in case.figures]
    rows = "\n".join(_row(line) for line in lines)
    charts = "\n".join(_chart(line) for line in lines if line.peer is not None)
    return f"""<h2>{escape(case.title)}</h2>
<table><tr><th><th>txn<th>Kafka, warm<th>cold<th>ratio<th>limit<th>target<th></tr>
{rows}</table>
{charts}{_kernel_share(results, case)}"""


def _row(line: Line) -> str:
    verdict = {True: "met", False: "missed", None: ""}[line.is_met]
    unit = f" {line.figure.unit}" if line.figure.unit else ""
    ratio = f"{shown(line.ratio)} ×" if line.ratio else ""
    cells = "".join(
        f"<td>{escape(cell)}"
        for cell in (
            shown(line.txn) + unit,
            shown(line.peer),
            shown(line.peer_cold),
            ratio,
            shown(line.limit),
            line.target,
        )
    )
    return f"<tr><td>{escape(line.figure.title)}{cells}<td class={verdict or 'none'}>{verdict}</tr>"


def _chart(line: Line) -> str:
    """Bars of txn, the warm and the cold peer, and a line where the machine's limit is."""
    bars = [
        (name, value, colour)
        for name, value, colour in (
            ("txn", line.txn, "--txn"),
            ("Kafka, warm", line.peer, "--kafka"),
            ("Kafka, cold", line.peer_cold, "--cold"),
        )
        if value is not None
    ]
    longest = max([value for _, value, _ in bars] + [line.limit or 0.0]) or 1.0
    height = len(bars) * ROW + 4
    drawn = "".join(_bar(place, *bar, longest) for place, bar in enumerate(bars))
    limit = ""
    if line.limit is not None:
        x = LABEL + BAR * line.limit / longest
        limit = (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}" stroke="currentColor" '
            'stroke-dasharray="3 3"/>'
        )
    title = escape(f"{line.figure.title}, {line.figure.unit}")
    return (
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}">'
        f"<title>{title}</title>{drawn}{limit}</svg>"
    )


def _bar(place: int, name: str, value: float, colour: str, longest: float) -> str:
    y = place * ROW
    width = BAR * value / longest
    return (
        f'<text x="0" y="{y + 14}">{name}</text>'
        f'<rect x="{LABEL}" y="{y + 3}" width="{width:.1f}" height="{ROW - 6}" '
        f'fill="var({colour})"/>'
        f'<text x="{LABEL + width + 6:.1f}" y="{y + 14}">{shown(value)}</text>'
    )


def _kernel_share(results: Results, case: Case) -> str:
    """Where txn's time goes, in the coarsest cut: its own code, and the kernel on its behalf."""
    figures = results.txn.get(case.name, {})
    if "user_s_per_gb" not in figures:
        return ""
    pairs = list(zip(figures["cpu_s_per_gb"], figures["user_s_per_gb"], strict=True))
    total, user = sorted(pairs)[len(pairs) // 2]
    return (
        f"<p class=note>Of txn's {shown(total)} s per GB, {shown(user)} s are its own code, "
        f"{shown(total - user)} s the kernel's: sockets, page cache, wake-ups.</p>"
    )


def _limits(results: Results) -> str:
    rows = "".join(_limit_rows(results))
    return f"<table><tr><th>what<th>median<th>lowest<th>highest</tr>{rows}</table>"


def _limit_rows(results: Results) -> Iterator[str]:
    for key, values in results.limits.items():
        middle = sorted(values)[len(values) // 2]
        cells = "".join(f"<td>{shown(value)}" for value in (middle, min(values), max(values)))
        yield f"<tr><td>{escape(key.replace('_', ' '))}{cells}</tr>"
