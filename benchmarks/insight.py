"""Does insight cost decoding anything? Tokens/s with it divided by tokens/s without, on the same prompts.

    python benchmarks/insight.py [--repeat 3] [--max-new-tokens 96] [--preset demo] [--device cpu]

The same session runs each prompt with insight on and off in turn, the first of a pair changing every time. Ratios
are those of the engine's clock, which stands still while insight is computed; the wall times tell what that takes.
The token ids of both must be equal, or the program fails.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from statistics import median, quantiles

from specdec_tui.benchmark.run import Result, measure
from specdec_tui.benchmark.suites import builtin_suite
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings


def one(engine: LocalEngine, text_index: int, settings: Settings) -> tuple[float, dict[str, Result]]:
    """Seconds on the wall, and the results by strategy, of one prompt of the everyday suite."""
    prompt = builtin_suite("everyday")[text_index]
    begin = time.perf_counter()
    results = measure(engine, [replace(prompt, turns=prompt.turns[:1])], settings, repeat=1, warmup=0)
    return time.perf_counter() - begin, {result.strategy: result for result in results}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--target", default="", help="another target than the preset's, with --drafter")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    engine = LocalEngine()
    names = ("preset", "target", "drafter", "device")
    engine.load(ModelChoice(**{name: getattr(options, name) for name in names}), lambda progress: None)
    base = Settings(max_new_tokens=options.max_new_tokens, processor="nucleus", temperature=0.7)
    ratios: dict[str, list[float]] = {}
    walls: list[float] = []
    one(engine, 0, base)
    for number in range(options.repeat * 8):
        index = number % 8
        found = {}
        for insight in (True, False) if number % 2 else (False, True):
            found[insight] = one(engine, index, replace(base, insight=insight))
        walls.append(found[True][0] / found[False][0])
        for name, with_it in found[True][1].items():
            without = found[False][1][name]
            if with_it.token_ids != without.token_ids:
                print(f"insight changed the tokens of {name} on prompt {index}", file=sys.stderr)
                return 1
            rate, plain = with_it.figures.decode_tokens_per_second, without.figures.decode_tokens_per_second
            if rate and plain:
                ratios.setdefault(name, []).append(rate / plain)
    for name, own in ratios.items():
        low, middle, high = quantiles(own, n=4)
        print(f"{name:<12} {len(own)} pairs, same ids, tokens/s on / off {middle:.3f} (quartiles {low:.3f}–{high:.3f})")
    print(f"wall time on / off {median(walls):.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
