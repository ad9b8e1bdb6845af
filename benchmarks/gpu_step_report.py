"""What `gpu_step.py` measured: kept on disk after every row, told as one table, judged by its bars."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_report import markdown, ratio
from gpu_shapes import MODELS
from gpu_texts import Ids

FOUR_OVER_ONE = 1.04
"""What a pass over the most tokens may take over one, in passes over one."""
LONG_TEXT = 0.85
"""What the share of the floor may fall to behind a long text, in shares behind the shortest."""
FASTER = {"int8": 1.3, "gptq8": 1.3, "int4": 2.0, "gptq": 2.0}
"""How many times as fast as the plain form's a pass over the fewest tokens should be."""
NO_WORSE = 1.0
"""What the distance to float32 may be, in distances of transformers' forward pass."""

Row = dict[str, Any]


class Steps:
    """Rows of figures, one for a shape, a form, a text and a way; `FILE` holds them after each."""

    def __init__(self, path: Path | None, environment: dict[str, Any]) -> None:
        self._path = path
        self.data: dict[str, Any] = {"environment": environment, "rows": [], "failed": []}

    def add(self, kind: str, row: Row) -> None:
        self.data[kind].append(row)
        print(line_of(row) if kind == "rows" else f"{kind}: {', '.join(map(str, row.values()))}", flush=True)
        if self._path is not None:
            self._path.write_text(json.dumps(self.data) + "\n", encoding="utf-8")

    @property
    def rows(self) -> list[Row]:
        return self.data["rows"]


def line_of(row: Row) -> str:
    """A row as a line of its own, when it is there."""
    few, *more = row["seconds"]
    grown = "".join(f", {tokens} over {few}: {row['seconds'][tokens] / row['seconds'][few]:.3f}" for tokens in more)
    place = f"{row['shape']} {row['form']} {row['text']} {row['way']}"
    times = f"{1000 * row['seconds'][few]:.3f} ms, {share(row):.1%}{grown}"
    worse = ratio(row["off"], row["theirs"])
    off = (
        f"off {row['off']:.4f}"
        + ("" if worse is None else f", of theirs {worse:.3f}")
        + ", UNLIKE alone" * (not row["alone"])
    )
    return (
        f"{place}: {times}; {off}; ids {_ids(row)}; MB {_megabytes(row['held'])} held, {_megabytes(row['peak'])} peak"
    )


def _ids(row: Row) -> str:
    return str(Ids(**row["ids"])) if row["ids"] else "–"


def _megabytes(count: int | None) -> str:
    return "–" if count is None else f"{count / 1e6:.0f}"


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def share(row: Row) -> float:
    """The part of a pass over the fewest tokens that its floor takes; above 1 the floor is wrong, or the clock is."""
    return float(row["floor"][min(row["floor"], key=int)]) / _fewest(row)


def _fewest(row: Row) -> float:
    """Seconds of a pass over the fewest tokens."""
    return float(row["seconds"][min(row["seconds"], key=int)])


def growth(row: Row) -> float | None:
    """A pass over the most tokens in passes over the fewest; None where there is one number of tokens."""
    few, many = min(row["seconds"], key=int), max(row["seconds"], key=int)
    return None if few == many else float(row["seconds"][many] / row["seconds"][few])


def verdict(share: float, needed: float, goal: float = 0.0) -> str:
    """How a share of the floor stands that should be at least `needed`, better `goal`."""
    if share > 1:
        return "impossible"
    if not share >= needed:
        return "not met"
    return "goal" if goal and share >= goal else "met"


def judged(rows: Sequence[Row]) -> list[Row]:
    """The bars of our rows: each with what it is of, the figure, what is needed, and whether it is met."""
    bars = []
    shortest = min((row["text"] for row in rows), default=0)
    for row in rows:
        if row["way"] != "ours":
            continue
        name, text, form = row["shape"], row["text"], row["form"]
        shape, place = MODELS[name], {"shape": name, "form": form, "text": text}
        if text == shortest:
            needed, goal = (shape.needed, shape.goal) if form == "plain" else (0.0, 0.0)
            told = verdict(share(row), needed, goal)
            if needed or told == "impossible":
                bars.append({**place, "bar": "share", "is": share(row), "needed": needed, "verdict": told})
        elif base := _same(rows, row, text=shortest):
            held = share(row) / share(base)
            told = "impossible" if share(row) > 1 else "met" if held >= LONG_TEXT else "not met"
            bars.append({**place, "bar": "share of the shortest's", "is": held, "needed": LONG_TEXT, "verdict": told})
        if form in FASTER and (plain := _same(rows, row, form="plain")):
            times, needed = _fewest(plain) / _fewest(row), FASTER[form]
            told = "met" if times >= needed else "not met"
            bars.append({**place, "bar": "times as fast as plain", "is": times, "needed": needed, "verdict": told})
        if (grown := growth(row)) is not None and "experts" not in str(shape.config):
            told = "met" if grown <= FOUR_OVER_ONE else "not met"
            bars.append({**place, "bar": "most over fewest", "is": grown, "needed": FOUR_OVER_ONE, "verdict": told})
        told = "met" if row["alone"] else "not met"
        bars.append({**place, "bar": "alone as in a block", "is": row["alone"], "needed": True, "verdict": told})
        worse = ratio(row["off"], row["theirs"])
        told = "met" if row["off"] <= NO_WORSE * row["theirs"] else "not met"  # also where one is no number
        bars.append({**place, "bar": "off, of theirs", "is": worse, "needed": NO_WORSE, "verdict": told})
        unlike = row["ids"]["unlike"]
        told = "not met" if unlike else "met"
        bars.append({**place, "bar": "ids unlike", "is": unlike, "needed": 0, "verdict": told})
    return bars


def _same(rows: Sequence[Row], row: Row, **other: Any) -> Row | None:
    """The row that is like one but for what is given."""
    wanted = {name: row[name] for name in ("shape", "form", "text", "way")} | other
    return next((found for found in rows if all(found[name] == value for name, value in wanted.items())), None)


def table(rows: Sequence[Row], before: Sequence[Row] = ()) -> str:
    """All rows, beside the shares of those of an earlier run."""
    lines = []
    for row in rows:
        shape = MODELS[row["shape"]]
        line: Row = {name: row[name] for name in ("shape", "form", "text", "way")}
        line |= {"GB": row["bytes"] / 1e9, "floor ms": 1000 * row["floor"][min(row["floor"], key=int)]}
        line |= {f"{tokens}: ms": f"{1000 * seconds:.3f}" for tokens, seconds in row["seconds"].items()}
        found = share(row)
        line["share"] = f"{found:.1%}" + (" IMPOSSIBLE" if found > 1 else "")
        if before:
            earlier = _same(before, row)
            line["before"] = None if earlier is None else f"{share(earlier):.1%}"
        asked = shape.needed if row["way"] == "ours" and row["form"] == "plain" else 0
        line["needed (goal)"] = f"{shape.needed:.0%}" + f" ({shape.goal:.0%})" * bool(shape.goal) if asked else None
        grown = growth(row)
        line["most/fewest"] = None if grown is None else f"{grown:.3f}"
        line["off by"] = row["off"]
        worse = ratio(row["off"], row["theirs"])
        line["of theirs"] = None if worse is None else f"{worse:.3f}"
        line["alone"] = "as in the block" if row["alone"] else "unlike"
        line["ids"] = _ids(row)
        line |= {f"{name} MB": _megabytes(row[name]) for name in ("held", "keys", "peak")}
        lines.append(line)
    return markdown(lines)


def summary(bars: Sequence[Row]) -> str:
    """The bars by what they ask, those that are not met by name."""
    lines = []
    for kind in dict.fromkeys(bar["bar"] for bar in bars):
        of_kind = [bar for bar in bars if bar["bar"] == kind]
        missed = [bar for bar in of_kind if bar["verdict"] not in ("met", "goal")]
        goals = sum(bar["verdict"] == "goal" for bar in of_kind)
        lines.append(
            f"{kind}: {len(of_kind) - len(missed)} of {len(of_kind)} met" + f", {goals} at their goal" * bool(goals)
        )
        for bar in missed:
            place = f"{bar['shape']} {bar['form']}, text {bar['text']}"
            lines.append(f"  {bar['verdict'].upper()}: {place}: {_short(bar['is'])} for {bar['needed']}")
    return "\n".join(lines)
