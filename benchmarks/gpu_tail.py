"""What does a round on this GPU cost beside its passes? In a minute, most of which compiles the kernels.

    python benchmarks/gpu_tail.py [--width 128256] [--gamma 3] [--repeat 7]

Models that give fixed logits at no cost, a captured round over them: under each way to sample, and each rule, the time
of a round by our kernels and by torch, in turns, medians of `--repeat` of 20 rounds. Before, both play rounds of the
same numbers, and what they chose and kept is compared: "same", or the first difference. Logits are normal numbers:
peaked as those of language models are, or flat, where a nucleus holds most of the vocabulary.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from statistics import median

import torch
from torch import Tensor

from specdec_tui.backends import cuda_graphs
from specdec_tui.backends.cards import Card
from specdec_tui.backends.model import nothing
from specdec_tui.decoding.device_round import Choose, DeviceRound, Mark, RoundResult, fastest
from specdec_tui.decoding.round_state import Choosing, Plan, RoundState
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.decoding.torch_choosing import TorchChoosing

BOTH = Sampler("topknucleus", top_k=50, top_p=0.9)
WAYS = {
    "greedy": (Sampler(), ""),
    "multinomial": (Sampler("multinomial"), "rejection"),
    "top-k 50": (Sampler("topk", top_k=50), "rejection"),
    "nucleus 0.9": (Sampler("nucleus", top_p=0.9), "rejection"),
    "both": (BOTH, "rejection"),
    "both, k 1000": (Sampler("topknucleus", top_k=1000, top_p=0.9), "rejection"),
    "min-p 0.05": (Sampler("multinomial", min_p=0.05), "rejection"),
    "both, coupled": (BOTH, "coupled"),
    "both, block": (BOTH, "block"),
    "both, skip-adjustment": (BOTH, "skip-adjustment"),
}
SPREADS = {"peaked": 2.4, "flat": 0.5}
ROUNDS = 20


class Fixed:
    """A sequence that gives the same logits [n, V] at every pass."""

    capacity = 4096

    def __init__(self, logits: Tensor) -> None:
        self._logits, self.card = logits, Card(logits.device)

    def prefill(self, ids: Tensor, between: Callable[[], None] = nothing) -> Tensor:
        return self._logits[:1]

    def extend(self, ids: Tensor, begin: Tensor, keep: int) -> Tensor:
        return self._logits[:keep]


def made(spread: float, plan: Plan, choose: Choose, device: torch.device) -> DeviceRound:
    generator = torch.Generator(device).manual_seed(1)
    rows = [torch.randn(n, plan.width, device=device, generator=generator) for n in (1, plan.gamma + 1, 1)]
    target, drafter = (spread * (rows[0] + 0.3 * own) for own in rows[1:])
    return DeviceRound(Fixed(target), Fixed(drafter), plan, cuda_graphs.mark, choose)


def by_torch(plan: Plan, state: RoundState, mark: Mark) -> Choosing:
    return TorchChoosing(plan, state)


def begin(played: DeviceRound) -> None:
    generator = torch.Generator().manual_seed(3)
    uniforms = torch.rand(played.uniforms, dtype=torch.float64, generator=generator).tolist()
    played.begin([5, 9, 4], 2, 4000, uniforms, 11)


def rounds(played: DeviceRound, count: int = 5) -> Iterator[tuple[RoundResult, Tensor]]:
    begin(played)
    for _ in range(count):
        batch = played.send(played.step, 1)
        ((result,), _) = played.read(batch)
        yield result, played.scores_of(batch, 0).clone()


def difference(one: DeviceRound, other: DeviceRound) -> str:
    for number, ((mine, scores), (theirs, their_scores)) in enumerate(zip(rounds(one), rounds(other), strict=True)):
        if (mine.drafts, mine.accepted, mine.emitted) != (theirs.drafts, theirs.accepted, theirs.emitted):
            return f"round {number}: other tokens"
        if not torch.equal(scores > 0, their_scores > 0):
            return f"round {number}: other tokens are kept"
        own, others = (torch.tensor(result.numbers) for result in (mine, theirs))
        if not torch.allclose(own, others, rtol=1e-4, equal_nan=True):
            return f"round {number}: other numbers"
    return "same"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128_256)
    parser.add_argument("--gamma", type=int, default=3)
    parser.add_argument("--repeat", type=int, default=7)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(2, "needs a GPU\n")
    device = torch.device("cuda")
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, γ {options.gamma}, V {options.width:,}\n")
    print("| logits | way | kernels µs | torch µs | |\n|---|---|---|---|---|")
    for kind, spread in SPREADS.items():
        for name, (sampler, rule) in WAYS.items():
            plan = Plan(options.gamma, options.width, sampler, rule, (options.width - 1,), drafter_ids=options.width)
            ways = [made(spread, plan, choose, device) for choose in (fastest, by_torch)]
            found = difference(*ways)
            plays = [cuda_graphs.capture(way.step, way.state) for way in ways]
            times: list[list[float]] = [[], []]
            for _ in range(options.repeat):
                for way, play, own in zip(ways, plays, times, strict=True):
                    begin(way)
                    own.append(microseconds(play))
            print(f"| {kind} | {name} | {median(times[0]):.1f} | {median(times[1]):.1f} | {found} |", flush=True)


def microseconds(play: Callable[[], None]) -> float:
    """Of a round, from a stretch of them."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    play()
    first.record()
    for _ in range(ROUNDS):
        play()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / ROUNDS * 1000


if __name__ == "__main__":
    main()
