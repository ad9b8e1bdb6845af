"""Is the curve of the γ-lab right? What a run at one γ predicts of γ 1 to 8, against a sweep of the same prompt.

    python benchmarks/gamma_curve.py [--gamma 4] [--repeat 3] [--max-new-tokens 128] [--prompts 8]

For each prompt of the everyday suite: a run of target and strategy at the present γ, then a sweep of it exactly as `s`
in the γ-lab makes one (the same what-ifs, heats and interleaving, the same code for curve and points). Printed is, for
each prompt, |predicted − measured| / measured at every γ and their mean, for three curves of the run: `one run`, as the
screen draws it before any sweep (v(n) from passes that were measured before the first run, none of which the sweep
made); `a line`, without those (widths of a pass that the run has not seen lie on a straight line); and `with v(n)` from
the sweep itself, as the screen draws it then, in which only α is predicted. α is that of the run in all. Points whose
clock was disturbed are left out and counted.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from specdec_tui.benchmark.suites import builtin_suite
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.forecast import basis_of, forecast, missing
from specdec_tui.decoding.records import Event, Step
from specdec_tui.decoding.sweep import SweepFigures, points_of, with_passes
from specdec_tui.gamma_sweep import heats
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.summary import figures_of

GAMMAS = tuple(range(1, 9))


@dataclass(frozen=True)
class Curve:
    """One prompt: γ -> measured speedup, and what either curve predicted of it."""

    prompt: str
    alpha: float
    measured: dict[int, float]
    spread: dict[int, tuple[float, float]]
    one_run: dict[int, float]
    line: dict[int, float]
    with_passes: dict[int, float]
    beforehand: dict[int, float]
    left_out: int

    def errors(self, predicted: dict[int, float]) -> dict[int, float]:
        """γ -> by how much a prediction is off, as a share of what was measured."""
        return {gamma: predicted[gamma] / ratio - 1 for gamma, ratio in self.measured.items()}


CURVES: tuple[tuple[str, Callable[[Curve], dict[int, float]]], ...] = (
    ("one run", lambda curve: curve.one_run),
    ("a line", lambda curve: curve.line),
    ("with v(n)", lambda curve: curve.with_passes),
)


def curve_of(engine: LocalEngine, prompt: str, settings: Settings, strategy: str, repeat: int) -> Curve:
    """Run, sweep and compare. ValueError where nothing can be predicted."""
    events: list[Event] = []
    for attempt in range(3):
        engine.new_chat()
        events = list(engine.run(prompt, settings, lambda: False))
        figures = figures_of(events)
        problem = missing(figures[strategy], figures["target"])
        if not problem:
            break
        print(f"  run {attempt + 1}: {problem}", file=sys.stderr)
    else:
        raise ValueError(problem)
    for heat in heats(events, settings, strategy, GAMMAS, repeat):
        events += engine.what_ifs(heat, lambda: False)
    return compared(prompt, figures[strategy], figures["target"], events, strategy)


def compared(prompt: str, run: RunFigures, baseline: RunFigures, events: list[Event], strategy: str) -> Curve:
    """The points are of the sweep alone: the run that the curve is from is not to be its own witness."""
    swept = SweepFigures(event for event in events if isinstance(event, Step)).of(strategy)
    points = points_of(swept)
    clear = {gamma: point for gamma, point in points.items() if point.ratio is not None and not point.doubt}
    basis = basis_of(run, baseline)
    whole = with_passes(basis, swept)
    return Curve(
        prompt,
        basis.alpha,
        {gamma: point.ratio or 0.0 for gamma, point in clear.items()},
        {gamma: (point.low or 0.0, point.high or 0.0) for gamma, point in clear.items()},
        {gamma: forecast(basis, gamma).speedup for gamma in GAMMAS},
        {gamma: forecast(replace(basis, beforehand={}), gamma).speedup for gamma in GAMMAS},
        {gamma: forecast(whole, gamma).speedup for gamma in GAMMAS},
        {n: seconds / basis.step for n, seconds in basis.beforehand.items()},
        len(points) - len(clear),
    )


def lines_of(curve: Curve) -> Iterator[str]:
    yield f"“{curve.prompt[:60]}”  α {curve.alpha:.2f}" + f"  {curve.left_out} γ left out" * bool(curve.left_out)
    yield "  γ            " + "".join(f"{gamma:>8}" for gamma in curve.measured)
    yield "  measured     " + "".join(f"{ratio:>8.2f}" for ratio in curve.measured.values())
    yield "  low–high     " + "".join(f"{low:.2f}–{high:.2f}".rjust(10)[-9:] for low, high in curve.spread.values())
    yield "  beforehand v " + " ".join(f"{n}:{v:.2f}" for n, v in curve.beforehand.items())
    for name, predicted in ((name, of(curve)) for name, of in CURVES):
        errors = curve.errors(predicted)
        yield f"  {name:<13}" + "".join(f"{predicted[gamma]:>8.2f}" for gamma in curve.measured)
        yield "    off        " + "".join(f"{error:>+8.1%}" for error in errors.values())
        if errors:
            yield f"    mean |off| {mean(map(abs, errors.values())):.1%}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=int, default=4, help="the present γ, at which the curve is measured")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=8, help="how many of the suite's eight")
    parser.add_argument("--strategy", default="speculative")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: greedy")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="also write everything there")
    options = parser.parse_args()
    engine = LocalEngine()
    engine.load(ModelChoice(preset=options.preset, device=options.device), lambda progress: None)
    settings = Settings(
        strategies=("target", options.strategy),
        gamma=options.gamma,
        max_new_tokens=options.max_new_tokens,
        schedule="interleaved",
        insight=False,
        record=False,
        ignore_eos=True,
    )
    if options.temperature:
        settings = replace(settings, processor="multinomial", temperature=options.temperature)
    found: list[Curve] = []
    for prompt in builtin_suite("everyday")[: options.prompts]:
        try:
            found.append(curve_of(engine, prompt.turns[0], settings, options.strategy, options.repeat))
        except ValueError as problem:
            print(f"“{prompt.turns[0][:60]}”: {problem}", file=sys.stderr)
            continue
        print("\n".join(lines_of(found[-1])), flush=True)
    if not found:
        return 1
    for name, of in CURVES:
        by_prompt = [mean(map(abs, c.errors(of(c)).values())) for c in found if c.measured]
        print(
            f"{name}: mean absolute error {mean(by_prompt):.1%}, median {median(by_prompt):.1%}, "
            f"worst prompt {max(by_prompt):.1%}, over {len(by_prompt)} prompts"
        )
    if options.json:
        options.json.write_text(json.dumps([vars(curve) for curve in found], indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
