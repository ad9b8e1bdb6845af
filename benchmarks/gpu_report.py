"""What `gpu.py` measured: kept on disk after every piece, told as tables at the end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

FIXED = ("generate", "static")
"""Sides of transformers that draft nothing."""


class Report:
    """What was measured so far, on disk after every piece."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.data: dict[str, Any] = {"dials": [], "warm_up": [], "parts": [], "runs": [], "skipped": []}

    def add(self, kind: str, entry: dict[str, Any]) -> None:
        self.data[kind].append(entry)
        print(f"{kind}:", ", ".join(f"{k} {_told(v)}" for k, v in entry.items() if k != "ids"), flush=True)
        self.save()

    def save(self) -> None:
        if self._path is not None:
            self._path.write_text(json.dumps(self.data) + "\n", encoding="utf-8")

    def chosen(self, kind: str, **wanted: Any) -> list[dict[str, Any]]:
        """The entries that have the wanted values."""
        return [e for e in self.data[kind] if all(e[name] == value for name, value in wanted.items())]

    def middle(self, kind: str, figure: str, **wanted: Any) -> float | None:
        """Median of a figure over the entries that have the wanted values."""
        values = [e[figure] for e in self.chosen(kind, **wanted) if e.get(figure) is not None]
        return median(values) if values else None


def tables(report: Report) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows of medians: one per side without drafts, one per acceptance and γ."""
    options = report.data["options"]
    plain, drafted = [], []
    for length in options["prompts"]:
        plain += [plain_row(report, prompt=length, side=side) for side in ("target", *FIXED)]
        static = report.middle("runs", "tokens_per_second", prompt=length, side="static")
        for wish in options["acceptances"]:
            drafted += [drafted_row(report, {"prompt": length, "gamma": g}, wish, static) for g in options["gamma"]]
    return [r for r in plain if r["tok/s"]], [r for r in drafted if r["tok/s"] or r["assisted tok/s"]]


def plain_row(report: Report, **side: Any) -> dict[str, Any]:
    rate = report.middle("runs", "tokens_per_second", **side)
    return {
        **side,
        "tok/s": rate,
        "of floor": ratio(rate, report.data["floor"]["target_tokens_per_second"]),
        "prefill s": report.middle("runs", "first_seconds", **side),
        "whole s": report.middle("runs", "seconds", **side),
        "warm-up s": report.middle("warm_up", "seconds", **side),
        "same ids": told_lossless(report, **side),
    }


def drafted_row(report: Report, place: dict[str, int], wish: float, static: float | None) -> dict[str, Any]:
    ours, theirs, other = (
        {**place, "acceptance": wish, "side": side} for side in ("speculative", "assisted", "flashspec")
    )

    def own(figure: str) -> float | None:
        return report.middle("runs", figure, **ours)

    rate, assisted = own("tokens_per_second"), report.middle("runs", "tokens_per_second", **theirs)
    flashspec = report.middle("runs", "tokens_per_second", **other)
    taken, predicted, realised = own("round_seconds"), own("predicted"), own("speedup")
    return {
        **place,
        "wish": wish,
        "α": own("acceptance_rate"),
        "τ": own("tokens_per_target_call"),
        "tok/s": rate,
        "whole s": own("seconds"),
        "ms/round": 1000 * taken if taken else None,
        "of parts": ratio(taken, report.middle("parts", "round_seconds", **place)),
        "c": own("c"),
        "v": own("v"),
        "predicted": predicted,
        "speedup": realised,
        "of predicted": ratio(realised, predicted),
        "disturbed": sum(bool(e.get("disturbed")) for e in report.chosen("runs", **ours)),
        "same ids": told_lossless(report, **ours),
        "assisted tok/s": assisted,
        "× assisted": ratio(rate, assisted),
        "× static": ratio(rate, static),
        "assisted same ids": told_lossless(report, **theirs),
        "flashspec tok/s": flashspec,
        "× flashspec": ratio(rate, flashspec),
        "flashspec same ids": told_lossless(report, **other),
    }


def told_lossless(report: Report, **wanted: Any) -> str:
    """How often the ids were the target's, and of the other runs, how many tokens were near-ties."""
    runs = report.chosen("runs", **wanted)
    same = sum(r["lossless"] == "identical" for r in runs)
    wrong = sum(r["lossless"] == "different" for r in runs)
    ties = sum(r["near_ties"] for r in runs)
    text = f"{same} of {len(runs)}" + (f", {ties} near-ties" if ties else "")
    return text + (f", {wrong} DIFFERENT" if wrong else "")


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    if not rows:
        return ""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_told(value) for value in row.values()] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _told(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"
    return "–" if value is None else str(value)


def ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def print_summary(data: dict[str, Any]) -> None:
    made, floor, peak = data["environment"], data["floor"], data["peak_memory_bytes"]
    print(f"\n{made['gpu'] or 'CPU'}, torch {made['torch']}, transformers {made['transformers']}")
    print(f"copy {floor['copy_bytes_per_second'] / 1e9:.0f} GB/s" + (f", peak {peak / 1e9:.1f} GB" if peak else ""))
    for name in ("target", "drafter"):
        size, seconds, rate = (floor[f"{name}_{f}"] for f in ("weight_bytes", "seconds", "tokens_per_second"))
        print(f"{name}: {size / 1e9:.3g} GB, floor {1000 * seconds:.3g} ms = {rate:.0f} tok/s")
    print(f"flashspec {made['flashspec'] or 'is not installed: not compared'}")
    print(f"\n{markdown(data['plain'])}\n{markdown(data['drafted'])}")
    for entry in data["skipped"]:
        print("skipped:", ", ".join(f"{name} {value}" for name, value in entry.items()))
