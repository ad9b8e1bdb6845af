"""Recordings: scripted ones, of a server whose steps add so many tokens, and two real ones.

`vllm.jsonl` and `vllm_plain.jsonl` are real, of vLLM 0.32 (CPU) with and without its ngram drafter, on the text of
SmolLM2-135M-Instruct (Apache-2.0, as is what it wrote here).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from specdec_tui.traces.served.recording import Recording, parse_recording, read_recording

REAL = Path(__file__).parent
STEP = 0.25
"""Seconds of every scripted step."""


def real(name: str) -> Recording:
    return read_recording(REAL / f"{name}.jsonl")


def recorded(lines: Sequence[dict[str, Any]], server: str = "vllm", **asked: Any) -> Recording:
    return parse_recording(text_of(lines, server, **asked), "run.jsonl")


def text_of(lines: Sequence[dict[str, Any]], server: str = "vllm", **asked: Any) -> str:
    request = {"prompt": "Count.", "temperature": 0.0} | asked
    header = {"specdec_tui_recording": 1, "server": server, "created": "2026-11-30T04:00:00Z", "request": request}
    return "".join(json.dumps(line) + "\n" for line in ({**header, "version": "1", "model": "m"}, *lines))


def vllm_events(counts: Sequence[int], finish: str = "length", **last: Any) -> list[dict[str, Any]]:
    """A stream whose steps add so many tokens, and the `last` event's own fields."""
    lines, at = [], 0
    for number, count in enumerate(counts):
        ids = list(range(at, at + count))
        pieces = [f" {id}" for id in ids]
        choice = {"index": 0, "text": "".join(pieces), "token_ids": ids, "logprobs": {"tokens": pieces}}
        choice |= {"finish_reason": finish if number == len(counts) - 1 else None}
        choice |= {"prompt_token_ids": [7, 8, 9]} if not number else {}
        lines.append({"seconds": (number + 1) * STEP, "event": {"choices": [choice]}})
        at += count
    return [*lines, {"seconds": (len(counts)) * STEP, "event": {"choices": [], **last}}]


def counted(each: Sequence[tuple[int, int]], gamma: int = 4, one_by_one: bool = True) -> dict[str, Any]:
    """The last event's `metrics` of steps that accepted and drafted so many."""
    kept, drafted = ([pair[place] for pair in each] for place in (0, 1))
    sums = {"num_spec_steps": len(each), "num_draft_tokens": sum(drafted), "num_accepted_draft_tokens": sum(kept)}
    told = {"per_step_accepted": kept, "per_step_drafted": drafted} if one_by_one else {}
    return {"speculative_decoding": {**sums, "num_spec_tokens": gamma, **told}}


def metrics(steps: int, drafted: int, accepted: int, tokens: int, gamma: int = 4) -> dict[str, str]:
    """The line of a `/metrics` text with these counters."""
    sums = {"num_drafts": steps, "num_draft_tokens": drafted, "num_accepted_tokens": accepted}
    lines = [f'vllm:spec_decode_{name}_total{{engine="0"}} {value}.0' for name, value in sums.items()]
    lines += [f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{p}"}} 1.0' for p in range(gamma)]
    return {"metrics": "\n".join([*lines, f'vllm:generation_tokens_total{{engine="0"}} {tokens}.0', ""])}


def llama_events(steps: Sequence[tuple[int, int]], stop_type: str = "limit", cut: int = 0) -> list[dict[str, Any]]:
    """A stream whose steps behind the prompt's drafted and accepted so many; the end `cut` so many tokens off."""
    lines: list[dict[str, Any]] = []
    drafted = accepted = written = 0
    total = 1 + sum(kept + 1 for _, kept in steps) - cut
    for number, (asked, kept) in enumerate(((0, 0), *steps)):
        drafted, accepted = drafted + asked, accepted + kept
        for _ in range(min(kept + 1, total - written)):
            written += 1
            timings = {"prompt_n": 2, "cache_n": 1, "prompt_ms": 500.0, "predicted_ms": number * STEP * 1e3}
            timings |= {"predicted_n": written}
            timings |= {"draft_n": drafted, "draft_n_accepted": accepted} if drafted else {}
            event = {"content": f" {written}", "tokens": [written], "stop": False, "timings": timings}
            lines.append({"seconds": number + written / 100, "event": event})
    end = {"content": "", "tokens": [], "stop": True, "stop_type": stop_type, "tokens_evaluated": 3}
    return [*lines, {"seconds": 1e3, "event": end}]
