"""What does a round on this GPU cost beyond its passes, greedy and sampled? In a minute and a half.

    python benchmarks/gpu_rounds.py [--acceptance 0.8 | --dial X] [--gamma 3] [--prompt 128] [--warm 2] [--json FILE]

The pair of `gpu.py` (random weights in the shapes of Llama 3.2 3B and 1B, a dial sets how often they agree), batch 1.
Under each way to sample the target alone and speculation with γ drafts write the same number of tokens, in turns; a
round is the wall time behind the prefill over the rounds, medians are shown. Its parts are γ captured passes of the
drafter over one token and one of the target over γ+1, each by itself, measured between the turns. The floor of a step
of the target is reading its weights, and the keys and values of half the run, at the speed of a device copy.
Speedup and prediction are of the greedy runs, side by side; ids are compared with the target's own of the same turn.
Passes are our kernels' where they fit, without the trial that the app makes first. `--warm N` compiles both models'
passes in N processes before. Without a GPU the tiny pair is the default; try --dtype float32 there.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402
from dialled_pair import EPSILON, SHAPES, DialledPair, add_pair, share, whole  # noqa: E402
from gpu import Contest, Outcome, captured_rounds, copy_bytes_per_second, environment  # noqa: E402
from gpu_report import markdown, ratio  # noqa: E402
from gpu_shapes import reads  # noqa: E402
from gpu_step import opener, warm  # noqa: E402

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.decoding.costs import costs  # noqa: E402
from specdec_tui.decoding.figures import speedup  # noqa: E402
from specdec_tui.decoding.lossless import check, near_tie_bound  # noqa: E402
from specdec_tui.decoding.sampling import Sampler  # noqa: E402

WAYS = {
    "greedy": Sampler("greedy"),
    "multinomial": Sampler("multinomial"),
    "top-k 50": Sampler("topk", top_k=50),
    "nucleus 0.9": Sampler("nucleus", top_p=0.9),
    "both": Sampler("topknucleus", top_k=50, top_p=0.9),
}
SIDES = ("target", "speculative")
PUBLIC = {"llama3.2": ("llama-3.2-3b", "llama-3.2-1b"), "tiny": ("tiny-llama", "tiny-llama")}
"""Shapes of `gpu_shapes.py` whose passes are those of a pair, but for the epsilon of norms."""
OF_PARTS, OF_GREEDY = 1.04, 1.05
OF_FLOOR, OF_FLOOR_GOAL = 0.76, 0.79


class Rounds:
    """Runs of a pair under each way to sample, whose programs are kept apart: a pair keeps only few."""

    def __init__(self, contest: Contest, prompt: list[int], gamma: int, device: torch.device) -> None:
        self._contest, self._prompt, self._gamma = contest, prompt, gamma
        self._programs = {way: captured_rounds(device) for way in WAYS}
        self.runs: dict[tuple[str, str], list[Outcome]] = {(way, side): [] for way in WAYS for side in SIDES}
        self.failed: dict[str, str] = {}
        self.parts: list[tuple[float, float]] = []
        self.lossless: list[tuple[str, int]] = []
        self.pairs: list[tuple[float | None, float | None]] = []

    def warm_up(self) -> None:
        for way, sampler in WAYS.items():
            self._contest.programs = self._programs[way]
            try:
                taken = [self._contest.warm_up(side, self._gamma, self._prompt, sampler) for side in SIDES]
                print(f"ready: {way}, {', '.join(f'{seconds:.1f} s' for seconds in taken)}", flush=True)
            except Exception as error:  # a way that cannot be captured must not cost the others
                self.failed[way] = f"{type(error).__name__}: {error}"[:400]
                print(f"failed: {way}, {self.failed[way]}", flush=True)

    @property
    def ways(self) -> dict[str, Sampler]:
        """Those that work."""
        return {way: sampler for way, sampler in WAYS.items() if way not in self.failed}

    def turn(self) -> None:
        """Each way once, and the parts."""
        draft = self._contest.pass_seconds(self._contest.drafter, self._prompt, 1)
        verify = self._contest.pass_seconds(self._contest.target, self._prompt, self._gamma + 1)
        self.parts.append((draft, verify))
        for way, sampler in self.ways.items():
            self._contest.programs = self._programs[way]
            plain, drafted = (self._contest.call(side, self._gamma, self._prompt, sampler=sampler) for side in SIDES)
            self.runs[way, "target"].append(plain)
            self.runs[way, "speculative"].append(drafted)
            if way == "greedy":
                self._compare(plain, drafted)
        told = ", ".join(f"{way} {1000 * (self.round_seconds(way) or 0):.3f} ms" for way in self.ways)
        print(f"turn {len(self.parts)}: {told}", flush=True)

    def _compare(self, plain: Outcome, drafted: Outcome) -> None:
        contest = self._contest
        found = check(
            contest.target,
            self._prompt,
            drafted.ids,
            plain.ids,
            sampler=WAYS["greedy"],
            rule="rejection",
            seed=0,
            bound=near_tie_bound(contest.pair.target.dtype),
        )
        self.lossless.append((found.status, found.ties))
        assert plain.figures and drafted.figures
        predicted = costs(drafted.figures, plain.figures).predicted_speedup
        self.pairs.append((speedup(plain.figures, drafted.figures), predicted))

    def round_seconds(self, way: str, side: str = "speculative") -> float | None:
        return _middle([run.round_seconds for run in self.runs[way, side]])

    @property
    def parts_seconds(self) -> float:
        return median(self._gamma * draft + verify for draft, verify in self.parts)


def _middle(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def results(rounds: Rounds, floor: float, seconds: float) -> dict[str, Any]:
    """All figures. `floor`: seconds of a step at least; `seconds`: what the measuring has taken."""
    rows = []
    greedy = {side: rounds.round_seconds("greedy", side) for side in SIDES}
    for way in rounds.ways:
        drafted, step = rounds.round_seconds(way), rounds.round_seconds(way, "target")
        figures = [run.figures for run in rounds.runs[way, "speculative"] if run.figures]
        rows.append(
            {
                "sampling": way,
                "α": _middle([one.acceptance_rate for one in figures]),
                "τ": _middle([len(run.ids) / run.passes for run in rounds.runs[way, "speculative"]]),
                "round_seconds": drafted,
                "of_parts": ratio(drafted, rounds.parts_seconds),
                "of_greedy_round": ratio(drafted, greedy["speculative"]),
                "step_seconds": step,
                "of_floor": ratio(floor, step),
                "of_greedy_step": ratio(step, greedy["target"]),
            }
        )
    return {
        "rows": rows,
        "parts": {
            "draft_seconds": median(draft for draft, _ in rounds.parts),
            "verify_seconds": median(verify for _, verify in rounds.parts),
            "round_seconds": rounds.parts_seconds,
        },
        "floor_seconds": floor,
        "failed": rounds.failed,
        "speedup": _middle([pair[0] for pair in rounds.pairs]),
        "predicted": _middle([pair[1] for pair in rounds.pairs]),
        "turns": len(rounds.parts),
        "identical": sum(status == "identical" for status, _ in rounds.lossless),
        "different": sum(status == "different" for status, _ in rounds.lossless),
        "near_ties": sum(ties for _, ties in rounds.lossless),
        "seconds": seconds,
    }


def judged(found: dict[str, Any]) -> list[tuple[str, float | None, str]]:
    """The bars: what, its figure, and how it stands."""
    bars: list[tuple[str, float | None, str]] = []
    for row in found["rows"]:
        if row["sampling"] == "greedy":
            share, of_parts, unlike = row["of_floor"], row["of_parts"], found["different"]
            stands = "impossible" if share > 1 else "goal" if share >= OF_FLOOR_GOAL else _at_least(share, OF_FLOOR)
            bars.append((f"target, of the floor ≥ {OF_FLOOR} ({OF_FLOOR_GOAL})", share, stands))
            bars.append((f"a greedy round, of its parts ≤ {OF_PARTS}", of_parts, _at_most(of_parts, OF_PARTS)))
            bars.append(("greedy ids that differ by more than a near-tie = 0", unlike, _at_most(unlike, 0)))
        else:
            figure = row["of_greedy_round"]
            stands = "not met" if figure is None else _at_most(figure, OF_GREEDY)
            bars.append((f"{row['sampling']}, of the greedy round ≤ {OF_GREEDY}", figure, stands))
    return bars + [(f"{way}: {why}", None, "failed") for way, why in found["failed"].items()]


def _at_most(figure: float, bar: float) -> str:
    return "met" if figure <= bar else "not met"


def _at_least(figure: float, bar: float) -> str:
    return "met" if figure >= bar else "not met"


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def told(found: dict[str, Any]) -> str:
    """Everything for a person."""
    parts = found["parts"]
    rows = [
        {
            name.replace("_seconds", " ms").replace("_", " "): 1000 * v if "seconds" in name else v
            for name, v in row.items()
        }
        for row in found["rows"]
    ]
    lines = [
        f"parts: a draft {1000 * parts['draft_seconds']:.3f} ms, a verify pass {1000 * parts['verify_seconds']:.3f} ms,"
        f" together {1000 * parts['round_seconds']:.3f} ms; floor of a step {1000 * found['floor_seconds']:.3f} ms",
        markdown(rows),
        f"speedup {_figure(found['speedup'])}, predicted {_figure(found['predicted'])}; ids identical in"
        f" {found['identical']} of {found['turns']} turns, {found['near_ties']} near-ties, {found['different']} unlike",
        *(f"{verdict.upper()}: {what}: {_figure(figure)}" for what, figure, verdict in judged(found)),
        f"{found['turns']} turns, {found['seconds']:.0f} s",
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_pair(parser)
    parser.add_argument("--acceptance", type=share, default=0.8, help="the agreement of first choices")
    parser.add_argument("--dial", type=float, help="set the dial, and do not search for an acceptance")
    parser.add_argument("--gamma", type=whole(1), default=3)
    parser.add_argument("--prompt", type=whole(2), default=128, help="tokens")
    parser.add_argument("--new-tokens", type=whole(8), default=256)
    parser.add_argument("--turns", type=whole(1), default=3)
    parser.add_argument("--seconds", type=float, default=75.0, help="no turn but the first begins after that")
    parser.add_argument("--warm", type=whole(1), metavar="N", help="compile in N processes first")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    device = torch.device(options.device)
    if options.warm:
        shapes, pair_shape = PUBLIC[options.shape], SHAPES[options.shape]
        narrower = EPSILON * (pair_shape.drafter.width / pair_shape.target.width)
        other = dict(zip(shapes, ({"rms_norm_eps": narrower}, {"rms_norm_eps": EPSILON}), strict=True))
        passes = {"tokens": [1, options.gamma + 1], "text": [options.prompt], "forms": ["plain"], "set": []}
        warm(shapes, options.warm, options.seconds, argparse.Namespace(**vars(options) | passes | {"other": other}))
    speed = copy_bytes_per_second(device)
    pair = DialledPair(SHAPES[options.shape], options.device, getattr(torch, options.dtype))
    if options.dial is None:
        print(f"agreement {pair.turn_to(options.acceptance):.3f} at dial {pair.dial:.4f}", flush=True)
    else:
        pair.dial = options.dial
    contest = Contest(pair, options.new_tokens, captured_rounds(device))
    for model in (contest.target, contest.drafter):
        take_ours(model)
    source = torch.Generator().manual_seed(0)
    prompt = torch.randint(pair.shape.vocab, (options.prompt,), generator=source).tolist()
    rounds = Rounds(contest, prompt, options.gamma, device)
    rounds.warm_up()
    for turn in range(options.turns):
        if turn == 0 or time.monotonic() - begin < options.seconds:
            rounds.turn()
    floor = reads(contest.target, 1, options.prompt + options.new_tokens // 2).all / speed
    found = results(rounds, floor, time.monotonic() - begin)
    found |= {"environment": environment(device) | {"copy_bytes_per_second": speed}, "dial": pair.dial}
    if options.json:
        options.json.write_text(json.dumps(found) + "\n", encoding="utf-8")
    print(f"\n{told(found)}")
    return 0


def take_ours(model: TransformersModel) -> None:
    """Let a model be run by our kernels where they fit, without a trial of them."""
    if gpu_model.fits(model.model):
        model._static = opener(model, "ours", model.forward)


if __name__ == "__main__":
    raise SystemExit(main())
