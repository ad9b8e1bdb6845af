"""Is anything painted as good that cannot be, while a machine's load comes and goes? Watches the screens of the app.

    python benchmarks/loaded_screens.py [--runs 8] [--spinners 2] [--on 5] [--off 5] [--sizes 120x40 80x24]

Runs the app on the demo pair under each schedule while other processes (those of `changing_load.py`) come and go,
and reads every screen that it paints a few times a second: each speedup that is green, and each in a row with a star,
against the tokens per target call of that strategy at that time, which come from token counts alone and from no
clock. It also counts how often "clock disturbed" was painted. Exit status 1 where anything good was above it.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from changing_load import PROMPT, SCHEDULES, Load, load

from specdec_tui.session import LocalEngine
from specdec_tui.settings import STRATEGIES, ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp

RATIO = re.compile(r"(\d+\.\d\d)×")
NAME = re.compile(r"\b(" + "|".join(STRATEGIES) + r")\b")
EVERY = 0.15  # seconds from one look to the next
ROUNDING = 0.005  # ratios are painted with two decimals
WAIT = 300


def praised(app: SpecdecApp) -> Iterator[tuple[str, float]]:
    """Strategy and ratio of every speedup on the screen that is painted green or starred."""
    green = app.theme_variables["token-accepted"].lower()
    panes = {name: pane.region for name, pane in app.grid.panes.items() if pane.display}
    for y, strip in enumerate(app.screen._compositor.render_strips()):
        x, last, starred = 0, "", "★" in strip.text
        for segment in strip:
            inside = next((name for name, region in panes.items() if region.contains(x, y)), "")
            last = (NAME.findall(segment.text) or [last])[-1]
            color = segment.style.color.triplet if segment.style and segment.style.color else None
            if starred or (color is not None and color.hex.lower() == green[:7]):
                for ratio in RATIO.findall(segment.text):
                    yield inside or last, float(ratio)
                    starred = False  # the first ratio of the row is its speedup
            x += segment.cell_length


async def watch(app: SpecdecApp, size: tuple[int, int], others: Load, counts: Counter[str], faults: list[str]) -> None:
    """One run of the app, looked at until it has been compared."""
    before: dict[str, float] = {}
    async with app.run_test(size=size) as pilot:
        await until(lambda: app.runs.running, pilot)
        others.go()
        while app.runs.running:
            look(app, before, counts, faults)
            await asyncio.sleep(EVERY)
        others.pause()
        await pilot.pause()
        look(app, before, counts, faults)


def look(app: SpecdecApp, before: dict[str, float], counts: Counter[str], faults: list[str]) -> None:
    """Count what is painted. `before`: the tokens per target call that the last look found, by strategy."""
    counts["screens"] += 1
    counts["clock disturbed"] += "clock disturbed" in "\n".join(s.text for s in app.screen._compositor.render_strips())
    rates = {name: pane.figures.tokens_per_target_call or 0.0 for name, pane in app.grid.panes.items()}
    for name, ratio in praised(app):
        counts["praised"] += 1
        most = max(rates[name], before.get(name, 0.0))  # what is painted may be a look older than the count
        if ratio > most + ROUNDING:
            faults.append(f"{name}: {ratio:.2f}× is painted as good at {most:.2f} tokens per target call")
    before.update(rates)


async def until(condition: Any, pilot: Any) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("the app did not get there")
        await pilot.pause(0.05)


def main() -> int:
    options = parser().parse_args()
    counts: Counter[str] = Counter()
    faults: list[str] = []
    with load(options.spinners, options.on, options.off, "cpu") as others:
        for number in range(options.runs):
            for schedule in SCHEDULES:
                width, _, height = options.sizes[number % len(options.sizes)].partition("x")
                settings = Settings(schedule=schedule, max_new_tokens=options.max_new_tokens, ignore_eos=True)
                app = SpecdecApp(LocalEngine(), settings, ModelChoice(), PROMPT)
                asyncio.run(watch(app, (int(width), int(height)), others, counts, faults))
                print(f"{number + 1} {schedule} {width}x{height}: {dict(counts)}, {len(faults)} faults", flush=True)
    for fault, times in Counter(faults).items():
        print(f"FAULT {fault} ({times} times)")
    return 1 if faults else 0


def parser() -> argparse.ArgumentParser:
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--runs", type=int, default=8, help="runs under each schedule")
    found.add_argument("--spinners", type=int, default=2, help="processes of the load")
    found.add_argument("--on", type=float, default=5.0, help="seconds that they work")
    found.add_argument("--off", type=float, default=5.0, help="seconds that they sleep")
    found.add_argument("--sizes", nargs="+", default=["120x40", "80x24"], help="in turns")
    found.add_argument("--max-new-tokens", type=int, default=128)
    return found


if __name__ == "__main__":
    raise SystemExit(main())
