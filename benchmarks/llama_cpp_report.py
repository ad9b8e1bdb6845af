"""What `llama_cpp.py` measured: medians and ratios of it, and their tables. Standard library alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from turns import Spread, best, equal_share, of_groups, ratios, spread

Entry = dict[str, Any]
_MEGA = 1e6


def summarize(data: dict[str, Any], peer: str) -> dict[str, Any]:
    """All figures; `different` lists runs of ours whose text is not our own target's, `disturbed` counts runs."""
    timed = [*data["decode"], *data["suite"], *data["load"]]
    disturbed = [entry["disturbed"] for entry in timed if entry["disturbed"]]
    suite, different = _suite(data["suite"], peer)
    return {
        "decode": _decode(data["decode"], peer),
        "suite": suite,
        "load": _load(data["load"], data["file"]["bytes"]),
        "different": different,
        "disturbed": {"runs": len(timed), "disturbed": len(disturbed), "reason": max(disturbed, key=len, default="")},
    }


def rate(entry: Entry) -> float:
    """Tokens a second of the steps."""
    return float(entry["steps"] / entry["decode_seconds"])


def _prefill_rate(entry: Entry) -> float:
    return float(entry["text"] / entry["prefill_seconds"])


def _names(entries: Iterable[Entry]) -> list[str]:
    return list(dict.fromkeys(sorted((entry["side"] for entry in entries), key=lambda name: name != "llama.cpp")))


def _decode(entries: Sequence[Entry], peer: str) -> list[Entry]:
    rows = []
    for text in dict.fromkeys(entry["text"] for entry in entries):
        of_text = [entry for entry in entries if entry["text"] == text]
        steps, prefills = _by_turn(of_text, rate), _by_turn(of_text, _prefill_rate)
        for name in _names(of_text):
            rows.append(
                {
                    "text": text,
                    "side": name,
                    "tokens_per_second": asdict(spread([turn[name] for turn in steps])),
                    "of_peer": asdict(spread(ratios(steps, name, peer))),
                    "prefill_tokens_per_second": asdict(spread([turn[name] for turn in prefills])),
                    "prefill_of_peer": asdict(spread(ratios(prefills, name, peer))),
                }
            )
    return rows


def _by_turn(entries: Sequence[Entry], figure: Callable[[Entry], float]) -> list[dict[Any, float]]:
    """Of each turn: side, or side and γ where there are γ -> a figure."""
    turns: dict[int, dict[Any, float]] = {}
    for entry in entries:
        key = (entry["side"], entry["gamma"]) if "gamma" in entry else entry["side"]
        turns.setdefault(entry["turn"], {})[key] = figure(entry)
    return [turns[turn] for turn in sorted(turns)]


def _suite(entries: Sequence[Entry], peer: str) -> tuple[list[Entry], list[str]]:
    """A row for each side of ours, and which of its texts are not its target's."""
    prompts: dict[tuple[int, int], list[Entry]] = {}
    for entry in entries:
        prompts.setdefault((entry["prompt"], entry["user_turn"]), []).append(entry)
    groups = [_by_turn(of_prompt, rate) for of_prompt in prompts.values()]
    rows, different = [], []
    for name in (name for name in _names(entries) if name != peer):
        gammas = sorted({entry["gamma"] for entry in entries if entry["side"] == name and entry["gamma"]})
        rates = {g: of_groups([[turn[name, g] for turn in group] for group in groups]) for g in (0, *gammas)}
        drafted = []
        for gamma in gammas:
            runs = [entry for entry in entries if entry["side"] == name and entry["gamma"] == gamma]
            wrong = [run for run in runs if run["ids"] != _plain(prompts, run, name)["ids"]]
            different += [f"{name}, γ {gamma}, prompt {run['prompt'] + 1}, turn {run['turn'] + 1}" for run in wrong]
            judged, rounds = (sum(run[key] for run in runs) for key in ("judged", "rounds"))
            drafted.append(
                {
                    "gamma": gamma,
                    "tokens_per_second": asdict(rates[gamma]),
                    "of_peer": asdict(of_groups([ratios(group, (name, gamma), (peer, 0)) for group in groups])),
                    "of_target": asdict(of_groups([ratios(group, (name, gamma), (name, 0)) for group in groups])),
                    "acceptance_rate": sum(run["accepted"] for run in runs) / judged if judged else None,
                    "tokens_per_target_call": sum(run["steps"] for run in runs) / rounds if rounds else None,
                    "identical": len(runs) - len(wrong),
                    "runs": len(runs),
                }
            )
        plain = [entry for entry in entries if entry["side"] == name and not entry["gamma"]]
        agreed = [equal_share(run["ids"], _plain(prompts, run, peer)["ids"]) for run in plain]
        rows.append(
            {
                "side": name,
                "tokens_per_second": asdict(rates[0]),
                "peer_tokens_per_second": asdict(of_groups([[turn[peer, 0] for turn in group] for group in groups])),
                "of_peer": asdict(of_groups([ratios(group, (name, 0), (peer, 0)) for group in groups])),
                "equal_till_first_difference": asdict(spread(agreed)),
                "speculative": drafted,
                "best_gamma": best({gamma: rates[gamma] for gamma in gammas}) if gammas else None,
            }
        )
    return rows, different


def _plain(prompts: dict[tuple[int, int], list[Entry]], run: Entry, side: str) -> Entry:
    """The run of a side without drafts in the same turn."""
    of_prompt = prompts[run["prompt"], run["user_turn"]]
    wanted = {"side": side, "gamma": 0, "turn": run["turn"]}
    return next(entry for entry in of_prompt if all(entry[key] == value for key, value in wanted.items()))


def _load(entries: Sequence[Entry], size: int) -> list[Entry]:
    rows = []
    for name in _names(entries):
        of_side = [entry for entry in entries if entry["side"] == name]
        row: Entry = {"side": name}
        row["load_seconds"] = asdict(spread([entry["load_seconds"] for entry in of_side]))
        row["ready_seconds"] = asdict(spread([entry["ready_seconds"] for entry in of_side]))
        row["rss_before"] = spread([entry["memory_before"]["rss"] for entry in of_side]).median
        for key in ("rss_high", "rss", "pss", "private"):
            row[key] = spread([entry["memory_used"][key] for entry in of_side]).median
        row["rss_of_file"] = row["rss"] / size
        rows.append(row)
    return rows


def print_report(data: dict[str, Any]) -> None:
    made, summary, file = data["environment"], data["summary"], data["file"]
    torch, numba = (made["versions"][name] for name in ("torch", "numba"))
    print(f"\n{data['command']}")
    print(f"{made['processor']}, {made['cpu_count']} cores, {data['threads']} threads; {' '.join(made['flags'])}")
    print(
        f"{file['name']}, {file['bytes'] / _MEGA:,.0f} MB; specdec-tui {made['specdec_tui']}, "
        f"torch {torch}, numba {numba}; {data['peer']['package']} {data['peer']['version']}"
    )
    for name, loaded in data["loaded"].items():
        for model in loaded.get("models", ()):
            print(f"{name}: {model['name']}, {model['precision']}, {model['memory_bytes'] / _MEGA:,.0f} MB")
        if "built_for" in loaded:
            print(f"{name}: {loaded['built_for'].strip()}")
    if summary["decode"]:
        rows = [
            [
                str(row["text"]),
                row["side"],
                _told(row["tokens_per_second"], 1),
                _told(row["of_peer"], 2),
                _told(row["prefill_tokens_per_second"], 0),
                _told(row["prefill_of_peer"], 2),
            ]
            for row in summary["decode"]
        ]
        _table(["text", "side", "tok/s", "× llama.cpp", "prefill tok/s", "× llama.cpp"], rows)
    for row in summary["suite"]:
        _print_suite(row)
    if summary["load"]:
        rows = [
            [
                row["side"],
                _told(row["load_seconds"], 2),
                _told(row["ready_seconds"], 2),
                *(f"{row[key] / _MEGA:,.0f}" for key in ("rss_before", "rss_high", "rss", "pss", "private")),
                f"{row['rss_of_file']:.2f}",
            ]
            for row in summary["load"]
        ]
        heads = ["side", "load s", "import s", "MB before", "RSS high", "RSS", "PSS", "private", "RSS / file"]
        _table(heads, rows)
    if summary["different"]:
        print(f"DIFFERENT from our own target: {len(summary['different'])} texts, e.g. {summary['different'][0]}")
    found = summary["disturbed"]
    if found["disturbed"]:
        print(f"machine disturbed in {found['disturbed']} of {found['runs']} runs, e.g. {found['reason']}")
    elif found["runs"]:
        print(f"nothing else was at work in any of the {found['runs']} runs, and no side while it was idle")


def _print_suite(row: Entry) -> None:
    print(
        f"\neveryday suite, {row['side']}: plain {_told(row['tokens_per_second'], 1)} tok/s, llama.cpp "
        f"{_told(row['peer_tokens_per_second'], 1)}, ratio {_told(row['of_peer'], 2)}; llama.cpp's text is ours till "
        f"{_told(row['equal_till_first_difference'], 2)} of it"
    )
    rows = [
        [
            f"{drafted['gamma']}{' best' * (drafted['gamma'] == row['best_gamma'])}",
            _told(drafted["tokens_per_second"], 1),
            _told(drafted["of_peer"], 2),
            _told(drafted["of_target"], 2),
            "–" if drafted["acceptance_rate"] is None else f"{drafted['acceptance_rate']:.2f}",
            "–" if drafted["tokens_per_target_call"] is None else f"{drafted['tokens_per_target_call']:.2f}",
            f"{drafted['identical']} of {drafted['runs']}",
        ]
        for drafted in row["speculative"]
    ]
    if rows:
        heads = ["γ", "speculative tok/s", "× llama.cpp", "× our target", "α", "τ", "identical to our target"]
        _table(heads, rows)


def _told(found: dict[str, float] | Spread, places: int) -> str:
    values = found if isinstance(found, dict) else asdict(found)
    middle, low, high = (f"{values[key]:,.{places}f}" for key in ("median", "low", "high"))
    return f"{middle} ({low}–{high})"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    print()
    for line in (heads, ["-" * width for width in widths], *rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |")
