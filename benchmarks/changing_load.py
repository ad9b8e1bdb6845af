"""Do the figures hold on a machine whose load comes and goes? Both schedules, quiet and under an artificial load.

    python benchmarks/changing_load.py [--runs 8] [--spinners 2] [--on 5] [--off 5] [--device cpu] [--json FILE]

Runs one prompt through the strategies, in turns quiet and while other processes keep the device busy for ON seconds
and sleep for OFF seconds (on a CPU they count, on a GPU they multiply matrices). For each schedule and strategy: the
median speedup of quiet and of loaded runs, over all of them and over those that are called steady; their ratio; how
many were called disturbed; and how many were called steady with a speedup that their tokens per round do not allow
(more than a tenth above them). It fails, with exit status 1, where

  - a steady run has a speedup above what its tokens per round allow,
  - fewer than half of the intervals of disturbed runs have the quiet median in them (to a tenth),
  - the median of what is shown as a number, that of steady runs, is more than a tenth off the quiet one
    (with three steady runs or more),
  - with rounds interleaved, the median of all loaded runs is.

Start it on a machine that does nothing else: what else runs is a load too. Other models: --target and --drafter name
folders or hub ids (`dialled_pair.py` makes some). Try it: --runs 1 --max-new-tokens 24 --on 1 --off 1
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from specdec_tui.backends.pair import LoadError
from specdec_tui.benchmark.run import Result, measure
from specdec_tui.benchmark.suites import Prompt
from specdec_tui.session import LocalEngine
from specdec_tui.settings import DTYPES, PRESET_NAMES, ModelChoice, Settings

PROMPT = "List the numbers from one to forty in words, each on a line of its own, and then the months of the year."
SCHEDULES = ("sequential", "interleaved")
SLACK = 0.1
LEAST_STEADY = 3  # runs; the median of fewer is one run's luck
MATRIX = 2048  # rows and columns of what a GPU is kept busy with
COUNTS = 20_000  # of a loop between two looks at the clock


@dataclass(frozen=True, slots=True)
class Run:
    """What one run showed. `most`: its tokens per round, which its speedup cannot exceed."""

    strategy: str
    schedule: str
    loaded: bool
    speedup: float
    most: float
    word: str
    reason: str = ""
    low: float | None = None
    high: float | None = None

    def allows(self, ratio: float) -> bool:
        """Whether it is within a tenth of the run's interval."""
        if self.low is None or self.high is None:
            return False
        return self.low * (1 - SLACK) <= ratio <= self.high * (1 + SLACK)

    @property
    def is_impossible(self) -> bool:
        return self.word == "steady" and self.strategy != "drafter" and self.speedup > self.most * (1 + SLACK)


@dataclass(frozen=True, slots=True)
class Row:
    """The runs of a strategy under a schedule. Medians of speedups; None without runs of the kind.

    `loaded_steady`: over `steady` runs, those whose clock is called steady. `covered`: disturbed runs
    under load whose interval has the quiet median in it.
    """

    schedule: str
    strategy: str
    quiet: float
    quiet_disturbed: int
    loaded: float
    loaded_steady: float | None
    steady: int
    loaded_disturbed: int
    covered: int
    runs: int
    impossible: int

    @property
    def ratio(self) -> float:
        return self.loaded / self.quiet

    @property
    def steady_ratio(self) -> float | None:
        return None if self.loaded_steady is None else self.loaded_steady / self.quiet

    def faults(self) -> list[str]:
        """What must not be, a sentence each."""
        found = []
        what = f"{self.schedule} {self.strategy}"
        if self.impossible:
            found.append(
                f"{what}: {self.impossible} steady runs with a speedup above what their tokens per round allow"
            )
        if self.steady_ratio is not None and self.steady >= LEAST_STEADY and abs(self.steady_ratio - 1) > SLACK:
            found.append(f"{what}: steady runs under load are {self.steady_ratio - 1:+.0%} off the quiet ones")
        if 2 * self.covered < self.loaded_disturbed:
            found.append(f"{what}: {self.covered} of {self.loaded_disturbed} intervals have the quiet median in them")
        if self.schedule == "interleaved" and abs(self.ratio - 1) > SLACK:
            found.append(f"{what}: runs under load are {self.ratio - 1:+.0%} off the quiet ones")
        return found


def row_of(runs: Sequence[Run]) -> Row:
    """One row from the runs of one strategy under one schedule, quiet ones and loaded ones."""
    quiet, loaded = [run for run in runs if not run.loaded], [run for run in runs if run.loaded]
    steady = [run.speedup for run in loaded if run.word == "steady"]
    middle = median(run.speedup for run in quiet)
    return Row(
        schedule=runs[0].schedule,
        strategy=runs[0].strategy,
        quiet=middle,
        quiet_disturbed=sum(run.word == "disturbed" for run in quiet),
        loaded=median(run.speedup for run in loaded),
        loaded_steady=median(steady) if steady else None,
        steady=len(steady),
        loaded_disturbed=sum(run.word == "disturbed" for run in loaded),
        covered=sum(run.word == "disturbed" and run.allows(middle) for run in loaded),
        runs=len(loaded),
        impossible=sum(run.is_impossible for run in runs),
    )


def run_of(result: Result, schedule: str, loaded: bool) -> Run | None:
    """None for the target itself, and where nothing was measured."""
    ratio, told, figures = result.speedup, result.reliability, result.figures
    if result.strategy == "target" or ratio is None or not figures.rounds:
        return None
    most = (figures.new_tokens - figures.prefill_tokens) / figures.rounds
    words = ("not told",) if told is None else (told.word, told.reason, told.low, told.high)
    return Run(result.strategy, schedule, loaded, ratio, most, *words)


class Load:
    """Processes that keep the device busy now and then; they stand still until `go`."""

    def __init__(self, count: int, on: float, off: float, device: str) -> None:
        words = [sys.executable, __file__, "--spin", str(on), str(off), device]
        self._spinners = [subprocess.Popen(words, stdout=subprocess.PIPE) for _ in range(count)]
        for spinner in self._spinners:
            assert spinner.stdout is not None
            spinner.stdout.readline()  # it is ready
        self.pause()

    def go(self) -> None:
        self._tell(signal.SIGCONT)

    def pause(self) -> None:
        self._tell(signal.SIGSTOP)

    def end(self) -> None:
        for spinner in self._spinners:
            spinner.kill()
            spinner.wait()

    def _tell(self, what: signal.Signals) -> None:
        for spinner in self._spinners:
            spinner.send_signal(what)


@contextmanager
def load(count: int, on: float, off: float, device: str) -> Iterator[Load]:
    found = Load(count, on, off, device)
    try:
        yield found
    finally:
        found.end()


def spin(on: float, off: float, device: str) -> int:
    """Be busy for `on` seconds and sleep for `off`, all spinners together, while the parent lives."""
    work, parent = work_on(device), os.getppid()
    work()
    print("ready", flush=True)
    while os.getppid() == parent:
        phase = time.monotonic() % (on + off)
        if phase < on:
            work()
        else:
            time.sleep(on + off - phase)
    return 0


def work_on(device: str) -> Callable[[], object]:
    if not device.startswith("cuda"):
        return lambda: sum(range(COUNTS))
    import torch

    matrix = torch.ones(MATRIX, MATRIX, device=device)

    def multiply() -> None:
        torch.mm(matrix, matrix)
        torch.cuda.synchronize(device)

    return multiply


def measured(engine: LocalEngine, options: argparse.Namespace) -> list[Run]:
    """All runs: quiet and loaded ones, and schedules, in turns."""
    runs: list[Run] = []
    prompt = [Prompt((options.prompt,))]
    base = Settings(strategies=tuple(options.strategies.split(",")), ignore_eos=True, insight=False)
    settings = [
        Settings(**asdict(base) | {"schedule": schedule, "max_new_tokens": options.max_new_tokens})
        for schedule in options.schedules.split(",")
    ]
    for each in settings:
        measure(engine, prompt, each, repeat=1, warmup=0)
    with load(options.spinners, options.on, options.off, options.device) as others:
        for number in range(options.runs):
            for each in settings:
                for loaded in (False, True):
                    if loaded:
                        others.go()
                    results = measure(engine, prompt, each, repeat=1, warmup=0)
                    others.pause()
                    found = [run_of(result, each.schedule, loaded) for result in results]
                    runs += [run for run in found if run is not None]
                    shown = ", ".join(
                        f"{run.strategy} {run.speedup:.2f} {run.word}" for run in found if run is not None
                    )
                    kind = "loaded" if loaded else "quiet"
                    print(f"{number + 1} {each.schedule} {kind}: {shown}", file=sys.stderr, flush=True)
    return runs


def rows_of(runs: Sequence[Run]) -> list[Row]:
    places = dict.fromkeys((run.schedule, run.strategy) for run in runs)
    return [row_of([run for run in runs if (run.schedule, run.strategy) == place]) for place in places]


def print_table(rows: Sequence[Row]) -> None:
    heads = (
        "schedule",
        "strategy",
        "quiet",
        "disturbed",
        "loaded",
        "ratio",
        "steady",
        "median",
        "ratio",
        "disturbed",
        "covered",
        "above τ",
    )
    form = "{:<12} {:<12} {:>7} {:>9} {:>8} {:>6} {:>7} {:>7} {:>6} {:>9} {:>8} {:>8}"
    print(form.format(*heads))
    for row in rows:
        steady = ("–", "–") if row.steady_ratio is None else (f"{row.loaded_steady:.2f}", f"{row.steady_ratio:.2f}")
        of = row.runs
        print(
            form.format(
                row.schedule,
                row.strategy,
                f"{row.quiet:.2f}",
                f"{row.quiet_disturbed}/{of}",
                f"{row.loaded:.2f}",
                f"{row.ratio:.2f}",
                f"{row.steady}/{of}",
                *steady,
                f"{row.loaded_disturbed}/{of}",
                f"{row.covered}/{row.loaded_disturbed}",
                row.impossible,
            )
        )


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == ["--spin"]:
        return spin(float(words[1]), float(words[2]), words[3])
    options = parser().parse_args(words)
    engine = LocalEngine()
    choice = ModelChoice(
        **{name: getattr(options, name) for name in ("preset", "target", "drafter", "device", "dtype")}
    )
    try:
        engine.load(choice, lambda progress: None)
    except LoadError as error:
        print(f"changing_load: {error}", file=sys.stderr)
        return 2
    runs = measured(engine, options)
    rows = rows_of(runs)
    print_table(rows)
    faults = [fault for row in rows for fault in row.faults()]
    for fault in faults:
        print(f"FAULT {fault}")
    if options.json:
        ratios = [{"ratio": row.ratio, "steady_ratio": row.steady_ratio} for row in rows]
        whole: dict[str, Any] = {
            "options": vars(options) | {"json": str(options.json)},
            "rows": [asdict(row) | ratio for row, ratio in zip(rows, ratios, strict=True)],
            "runs": [asdict(run) for run in runs],
            "faults": faults,
        }
        options.json.write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 1 if faults else 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--runs", type=int, default=8, help="runs of each kind")
    found.add_argument("--spinners", type=int, default=2, help="processes of the load")
    found.add_argument("--on", type=float, default=5.0, help="seconds that they work")
    found.add_argument("--off", type=float, default=5.0, help="seconds that they sleep")
    found.add_argument("--max-new-tokens", type=int, default=128)
    found.add_argument("--prompt", default=PROMPT)
    found.add_argument("--strategies", default=",".join(Settings().strategies))
    found.add_argument("--schedules", default=",".join(SCHEDULES))
    found.add_argument("--preset", default="demo", choices=PRESET_NAMES)
    found.add_argument("--target", default="", help="another target than the preset's, with --drafter")
    found.add_argument("--drafter", default="")
    found.add_argument("--device", default="cpu")
    found.add_argument("--dtype", default="auto", choices=DTYPES)
    found.add_argument("--json", type=Path, help="write all runs and rows to this file")
    return found


if __name__ == "__main__":
    raise SystemExit(main())
