"""What does sampling add to a round? Each processor against greedy, on logits of the built-in pair.

    python benchmarks/sampling.py [--gamma 4] [--tokens 60] [--rounds 100] [--rule rejection]

The very loop of a run plays the rounds, on two models whose passes are a look into a store: rows of logits that the
pair gave at the places of greedy texts. So a round's drafting and rest are sampling and bookkeeping alone. Told are
microseconds of processor time more than a greedy round of as many drafts takes, medians (and least) of rounds of γ
drafts: of the drafts, behind the pass, and both; and in the last column what insight takes beside the clock, in a round
and whole. The wider vocabulary is the demo's, with copies of it in which each token is less probable and off by some
noise.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402

from specdec_tui.backends.model import CausalModel  # noqa: E402
from specdec_tui.benchmark.suites import builtin_suite  # noqa: E402
from specdec_tui.decoding.drafters import ModelDrafter  # noqa: E402
from specdec_tui.decoding.loop import decode  # noqa: E402
from specdec_tui.decoding.records import RoundVerified, RunEnded  # noqa: E402
from specdec_tui.decoding.sampling import Sampler, best_ids  # noqa: E402
from specdec_tui.session import LocalEngine  # noqa: E402
from specdec_tui.settings import ModelChoice  # noqa: E402

WIDE = 151_936  # ids, as Qwen2 and Qwen3 have
PROMPTS = 3
SAMPLERS = {
    "greedy": Sampler(),
    "multinomial": Sampler("multinomial", 0.7),
    "top-k 50": Sampler("topk", 0.7, top_k=50),
    "nucleus .9": Sampler("nucleus", 0.7, top_p=0.9),
    "nucleus .95, T 1": Sampler("nucleus", 1.0, top_p=0.95),
    "top-k 50, nucleus .9": Sampler("topknucleus", 0.7, top_k=50, top_p=0.9),
    "min-p .05": Sampler("multinomial", 0.7, min_p=0.05),
    "typical .9": Sampler("multinomial", 0.7, typical_p=0.9),
}


@dataclass
class Stored:
    """A model whose row behind a text depends on the text's length alone: it is looked up in `rows` [n, V]."""

    rows: torch.Tensor
    context_length: int | None = None

    @property
    def vocab_size(self) -> int:
        return self.rows.shape[-1]

    @property
    def device(self) -> torch.device:
        return self.rows.device

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> StoredContext:
        return StoredContext(self.rows)

    def synchronize(self) -> None:
        """There is nothing to wait for."""


@dataclass
class StoredContext:
    rows: torch.Tensor
    length: int = 0
    recomputes: bool = False

    def extend(self, ids: Sequence[int], keep: int) -> torch.Tensor:
        self.length += len(ids)
        places = [place % len(self.rows) for place in range(self.length - keep, self.length)]
        return self.rows[places]  # a copy, as fresh in the caches as that of a pass

    def rewind(self, length: int) -> None:
        self.length = length


def stored(tokens: int) -> tuple[Stored, Stored]:
    """Rows of target and drafter behind each token of greedy answers to some prompts."""
    engine = LocalEngine()
    engine.load(ModelChoice(preset="demo"), lambda progress: None)
    pair = engine.loaded.pair
    assert pair is not None
    models: tuple[CausalModel, CausalModel] = (pair.target, pair.drafters[0].model)
    found: tuple[list[torch.Tensor], list[torch.Tensor]] = ([], [])
    for prompt in builtin_suite("everyday")[:PROMPTS]:
        text = list(pair.tokenizer.encode(prompt.turns[0], (), True, lambda: False).ids)
        begin, context = len(text), models[0].open(capacity=len(text) + tokens)
        rows = context.extend(text, 1)
        for _ in range(tokens):
            text.append(best_ids(rows[-1:])[0])
            rows = context.extend(text[-1:], 1)
        for model, own in zip(models, found, strict=True):
            own.append(model.open(capacity=len(text)).extend(text, len(text) - begin))
    return Stored(torch.cat(found[0])), Stored(torch.cat(found[1]))


def widened(model: Stored, width: int, seed: int) -> Stored:
    """A model of as many ids: copies of its rows, each less probable than the one before and off by some noise."""
    noise = torch.Generator().manual_seed(seed)
    parts = [model.rows]
    while sum(part.shape[-1] for part in parts) < width:
        parts.append(model.rows - 3.0 * len(parts) - torch.randn(model.rows.shape, generator=noise).abs())
    return Stored(torch.cat(parts, -1)[:, :width].contiguous())


@dataclass(frozen=True)
class Cost:
    """Microseconds of rounds: of drafting, of the rest behind the pass, and with insight those beside the clock."""

    drafts: list[float]
    rest: list[float]
    beside: list[float]


def played(
    pair: tuple[Stored, Stored], sampler: Sampler, options: argparse.Namespace, insight: bool, seed: int
) -> Cost:
    target, drafter = pair
    cost, made = Cost([], [], []), ModelDrafter(drafter, target.vocab_size)
    how: dict[str, Any] = {
        "sampler": sampler,
        "rule": options.rule,
        "gamma": options.gamma,
        "insight": insight,
        "seed": seed,
    }
    # The processor time of this thread: other work on the machine is none of a round.
    how |= {"drafter": made, "max_new_tokens": 1 << 20, "clock": time.thread_time}
    records = decode(target, [0], strategy="speculative", **how)
    begin = time.thread_time()
    for record in records:
        wall = time.thread_time() - begin
        if isinstance(record, RunEnded):
            raise RuntimeError(record.message)
        if isinstance(record, RoundVerified) and len(record.drafts) == options.gamma:
            cost.drafts.append(1e6 * record.draft_seconds)
            cost.rest.append(1e6 * record.other_seconds)
            cost.beside.append(1e6 * (wall - record.verify_seconds - record.other_seconds))
            if len(cost.rest) == options.rounds:
                break
        begin = time.thread_time()
    return cost


def told(costs: Sequence[Cost], greedy: Sequence[Cost], part: Callable[[Cost], list[float]]) -> str:
    """What a part takes beyond what it takes of a greedy round, the median and the least of it."""
    own, base = ([value for cost in each for value in part(cost)] for each in (costs, greedy))
    return f"{median(own) - median(base):>8.0f} ({min(own) - min(base):>6.0f})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=60, help="rows of each prompt")
    parser.add_argument("--rounds", type=int, default=100, help="of each turn; there are three")
    parser.add_argument("--rule", default="rejection")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    pair = stored(options.tokens)
    torch.set_num_threads(options.threads)
    pairs = (pair, (widened(pair[0], WIDE, 1), widened(pair[1], WIDE, 2)))
    for each in pairs:
        found: dict[str, list[Cost]] = {name: [] for name in SAMPLERS}
        seen: dict[str, list[Cost]] = {name: [] for name in SAMPLERS}
        for turn in range(-1, 3):
            for name, sampler in SAMPLERS.items():
                for insight, costs in ((False, found), (True, seen)):
                    cost = played(each, sampler, options, insight, turn)
                    if turn >= 0:
                        costs[name].append(cost)
        base = found["greedy"]
        whole = [drafts + rest for cost in base for drafts, rest in zip(cost.drafts, cost.rest, strict=True)]
        print(f"{each[0].vocab_size:,} ids, γ {options.gamma}, {options.rule}, {options.threads} threads")
        print(f"greedy: drafts and rest take {median(whole):.0f} µs ({min(whole):.0f}), which includes the look-ups")
        print(f"{'µs more':<22}{'drafts':>17}{'behind the pass':>17}{'round':>17}{'insight, whole':>17}")
        for name in SAMPLERS:
            parts = [
                told(found[name], base, lambda cost: cost.drafts),
                told(found[name], base, lambda cost: cost.rest),
                told(found[name], base, lambda cost: list(map(sum, zip(cost.drafts, cost.rest, strict=True)))),
                told(seen[name], found[name], lambda cost: cost.beside),
            ]
            print(f"{name:<22}{''.join(f'{part:>17}' for part in parts)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
