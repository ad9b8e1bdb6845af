"""Third stage: acceptance on held-out prompts, by kind and with its spread."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

import torch

from distil.decoder import Decoder
from distil.files import Refused, brief
from distil.llama import Llama, hidden_states
from distil.openings import chat_pieces
from distil.speculation import Rounds, replay_rounds

GAMMAS = tuple(range(1, 9))
_JUDGED_AT_ONCE = 8
_ROWS_AT_ONCE = 512


@dataclass(frozen=True, slots=True)
class HeldOutPrompt:
    """One conversation: its user turns and its kind."""

    turns: tuple[str, ...]
    category: str


@dataclass(frozen=True, slots=True)
class EvaluationSettings:
    """The target answers at each of `temperatures`; `samples` texts per prompt where that is not 0.

    Each answer has at most `new_tokens`. On greedy answers Σ min(p, q) is taken at all other temperatures,
    on sampled ones at their own.
    """

    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    new_tokens: int = 128
    samples: int = 4
    seed: int = 1


@dataclass(slots=True)
class PromptFigures:
    """What was found for one prompt in answers of one temperature, over all its turns and samples.

    `matches` holds for each answer where the first choices agree, `accepted` for each temperature of the
    distributions Σ min(p, q) at every token.
    """

    category: str
    accepted: dict[float, list[float]] = field(default_factory=dict)
    matches: list[list[bool]] = field(default_factory=list)


def read_prompts(files: Iterable[Path]) -> list[HeldOutPrompt]:
    """JSON lines with `prompt` or `turns`, and `category`; Refused when a file holds anything else, or no prompt."""
    prompts = []
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise Refused(f"the prompts in {file} cannot be read ({brief(error)})") from error
        found = [_prompt(line, f"line {n} of {file}") for n, line in enumerate(lines, 1) if line.strip()]
        if not found:
            raise Refused(f"{file} holds no prompt")
        prompts += found
    return prompts


def _prompt(line: str, place: str) -> HeldOutPrompt:
    try:
        entry = json.loads(line)
        turns, category = entry.get("turns") or [entry["prompt"]], entry.get("category", "")
    except (ValueError, KeyError, AttributeError) as error:
        raise Refused(f'{place} is not JSON with "prompt" or "turns"') from error
    if not (isinstance(turns, list) and all(isinstance(text, str) for text in [*turns, category])):
        raise Refused(f"{place} has a prompt, turns or category that are not text")
    return HeldOutPrompt(tuple(turns), category)


def conditions(prompts: list[HeldOutPrompt], settings: EvaluationSettings) -> dict[str, Any]:
    """What figures depend on besides the models, to be kept with them: equal figures have equal conditions."""
    asked = json.dumps([(prompt.category, prompt.turns) for prompt in prompts], ensure_ascii=False)
    return {
        **asdict(settings),
        "temperatures": list(settings.temperatures),
        "prompts_sha256": hashlib.sha256(asked.encode()).hexdigest(),
    }


def prompt_ids(tokenizer: Any, turns: Sequence[str], answers: Sequence[str]) -> list[int]:
    """Ids of a conversation up to where the next answer starts; `answers` are those of all turns but the last."""
    messages = []
    for n, turn in enumerate(turns):
        messages.append({"role": "user", "content": turn})
        if n < len(answers):
            messages.append({"role": "assistant", "content": answers[n]})
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


@torch.no_grad()
def answer(model: Llama, prompts: list[list[int]], temperature: float, new_tokens: int, end_id: int) -> list[list[int]]:
    """The model's own continuations, the end token included where one was written. Uses the default generator."""
    device = model.embedding.device
    lengths = torch.tensor([len(ids) for ids in prompts], device=device)
    longest = int(lengths.max())
    capacity = longest + new_tokens
    rows = torch.full((len(prompts), capacity), end_id, dtype=torch.long)
    for n, ids in enumerate(prompts):
        rows[n, : len(ids)] = torch.tensor(ids)
    rows = rows.to(device)
    decoder = Decoder(model, len(prompts), capacity, fused=False)
    done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    for n in range(capacity - 1):
        hidden = decoder.step(rows[:, n], torch.tensor([n], device=device), n + 1)
        if temperature:
            p = torch.softmax(hidden @ model.head.t() / temperature, 1)
            chosen = (p / torch.empty_like(p).exponential_().clamp_min(1e-20)).argmax(1)
        else:
            chosen = (hidden @ model.head.t()).argmax(1)
        written = n + 1 >= lengths
        rows[:, n + 1] = torch.where(written & ~done, chosen, rows[:, n + 1])
        done |= written & (chosen == end_id) | (n + 2 >= lengths + new_tokens)
        if n % 16 == 15 and bool(done.all()):
            break
    answers = []
    for row, ids in zip(rows.tolist(), prompts, strict=True):
        written = row[len(ids) : len(ids) + new_tokens]
        answers.append(written[: written.index(end_id) + 1] if end_id in written else written)
    return answers


@torch.no_grad()
def compare(
    target: Llama, drafter: Llama, texts: list[tuple[list[int], list[int]]], temperatures: Sequence[float]
) -> list[tuple[list[bool], dict[float, list[float]]]]:
    """Per (prompt, answer): at each token of the answer, whether the first choices agree, and Σ min(p, q) of the
    distributions at each of `temperatures` (none of them 0). Both models read the same text at once.
    """
    found = []
    device = target.embedding.device
    for begin in range(0, len(texts), _JUDGED_AT_ONCE):
        part = texts[begin : begin + _JUDGED_AT_ONCE]
        longest = max(len(prompt) + len(written) for prompt, written in part)
        rows = torch.zeros(len(part), longest, dtype=torch.long)  # behind a row's end: never looked at, being causal
        for n, (prompt, written) in enumerate(part):
            rows[n, : len(prompt) + len(written)] = torch.tensor(prompt + written)
        rows = rows.to(device)
        states = [(model, hidden_states(model, rows)) for model in (target, drafter)]
        for n, (prompt, written) in enumerate(part):
            places = slice(len(prompt) - 1, len(prompt) - 1 + len(written))
            mine, theirs = (hidden[n, places] @ model.head.t() for model, hidden in states)
            agreed = mine.argmax(1) == theirs.argmax(1)
            accepted = {
                t: torch.minimum(torch.softmax(mine / t, 1), torch.softmax(theirs / t, 1)).sum(1).tolist()
                for t in temperatures
            }
            found.append((agreed.tolist(), accepted))
    return found


def evaluate(
    target: Llama,
    drafter: Llama,
    tokenizer: Any,
    prompts: list[HeldOutPrompt],
    settings: EvaluationSettings,
    tell: Callable[[str], None],
    most: int | None = None,
) -> dict[str, Any]:
    """Figures for a pair, both in float32 on one device, as a JSON object (see `conditions` and `summarize`).

    Refused when a conversation would be longer than the target's context of `most` tokens.
    """
    if target.shape.vocab != drafter.shape.vocab:
        raise Refused(f"the drafter has {drafter.shape.vocab:,} tokens and the target {target.shape.vocab:,}")
    result: dict[str, Any] = {"conditions": conditions(prompts, settings), "prompts": len(prompts), "temperatures": {}}
    for temperature in settings.temperatures:
        torch.manual_seed(settings.seed)
        figures = _at_temperature(target, drafter, tokenizer, prompts, settings, temperature, most)
        result["temperatures"][f"{temperature:g}"] = summarize(figures, greedy=temperature == 0)
        tokens = sum(len(match) for each in figures for match in each.matches)
        tell(f"temperature {temperature:g}: {tokens:,} tokens judged")
    return result


def _at_temperature(
    target: Llama,
    drafter: Llama,
    tokenizer: Any,
    prompts: list[HeldOutPrompt],
    settings: EvaluationSettings,
    temperature: float,
    most: int | None,
) -> list[PromptFigures]:
    end_id = chat_pieces(tokenizer).end_id
    figures = [PromptFigures(prompt.category) for prompt in prompts]
    judged = (temperature,) if temperature else tuple(t for t in settings.temperatures if t)
    copies = settings.samples if temperature else 1
    owners = [n for n in range(len(prompts)) for _ in range(copies)]
    answers: list[list[str]] = [[] for _ in owners]
    for turn in range(max(len(prompt.turns) for prompt in prompts)):
        asked = [n for n, owner in enumerate(owners) if turn < len(prompts[owner].turns)]
        for begin in range(0, len(asked), _ROWS_AT_ONCE):
            part = asked[begin : begin + _ROWS_AT_ONCE]
            ids = [prompt_ids(tokenizer, prompts[owners[n]].turns[: turn + 1], answers[n]) for n in part]
            longest = max(map(len, ids)) + settings.new_tokens
            if most and longest > most:
                raise Refused(f"a conversation of {longest:,} tokens is more than the {most:,} of the target's context")
            written = answer(target, ids, temperature, settings.new_tokens, end_id)
            found = compare(target, drafter, list(zip(ids, written, strict=True)), judged)
            for n, tokens, (agreed, accepted) in zip(part, written, found, strict=True):
                answers[n].append(tokenizer.decode(tokens, skip_special_tokens=True))
                for t, values in accepted.items():
                    figures[owners[n]].accepted.setdefault(t, []).extend(values)
                figures[owners[n]].matches.append(agreed)
    return figures


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "mean": round(fmean(values), 4),
        "low": round(min(values), 4),
        "high": round(max(values), 4),
        "deviation": round(pstdev(values), 4),
        "prompts": len(values),
    }


def summarize(figures: list[PromptFigures], greedy: bool) -> dict[str, Any]:
    """Per kind and over all prompts: `agreed` and `accepted` (mean, low and high of the prompts' means).

    `agreed` is the share of places where the first choices are the same, `accepted` the mean Σ min(p, q) at
    each temperature of the distributions.
    For greedy text also `speculative`: per γ the accepted share of the judged drafts and the tokens per round.
    """
    kinds: dict[str, Any] = {}
    for kind in [*sorted({each.category for each in figures}), "all"]:
        chosen = [each for each in figures if kind in (each.category, "all")]
        entry: dict[str, Any] = {
            "agreed": _spread([fmean([hit for run in each.matches for hit in run]) for each in chosen]),
            "accepted": {f"{t:g}": _spread([fmean(each.accepted[t]) for each in chosen]) for t in chosen[0].accepted},
        }
        if greedy:
            entry["speculative"] = {}
            for gamma in GAMMAS:
                total = Rounds(0, 0, 0, 0)
                for run in (run for each in chosen for run in each.matches):
                    total = total.plus(replay_rounds(run, gamma))
                entry["speculative"][str(gamma)] = {
                    "acceptance_rate": round(total.acceptance, 4),
                    "tokens_per_round": round(total.tokens_per_round, 4),
                }
        kinds[kind] = entry
    return kinds


def table(result: dict[str, Any]) -> str:
    """The figures as a Markdown table: per kind the mean (low to high), and γ below for greedy answers."""
    answers = result["temperatures"]
    columns: list[tuple[str, str, str | None]] = []  # heading, temperature of the answers, that of the distributions
    if "0" in answers:
        columns.append(("greedy answers: same first choice", "0", None))
    for written, kinds in answers.items():
        name = "greedy answers" if written == "0" else "sampled answers"
        columns += [(f"{name}: Σ min(p, q), T = {judged}", written, judged) for judged in kinds["all"]["accepted"]]
    lines = [f"| kind | prompts | {' | '.join(head for head, _, _ in columns)} |", "|---|---|" + "---|" * len(columns)]
    for kind, entry in next(iter(answers.values())).items():
        cells = []
        for _, written, judged in columns:
            found = answers[written][kind]
            spread = found["agreed"] if judged is None else found["accepted"][judged]
            cells.append(f"{spread['mean']:.3f} ({spread['low']:.2f} to {spread['high']:.2f})")
        lines.append(f"| {kind} | {entry['agreed']['prompts']} | {' | '.join(cells)} |")
    greedy = answers.get("0")
    if greedy:
        rounds = greedy["all"]["speculative"]
        lines += ["", "| γ | " + " | ".join(rounds) + " |", "|---|" + "---|" * len(rounds)]
        lines.append("| accepted | " + " | ".join(f"{each['acceptance_rate']:.3f}" for each in rounds.values()) + " |")
        lines.append(
            "| tokens per round | " + " | ".join(f"{each['tokens_per_round']:.2f}" for each in rounds.values()) + " |"
        )
    return "\n".join(lines)
