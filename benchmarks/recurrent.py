"""Does a round of a recurrent model cost more late in a text than early? Tiny random models, on the CPU.

    python benchmarks/recurrent.py                 # all families, about a minute
    python benchmarks/recurrent.py mamba bamba

A round as a target: a pass over four tokens, two of which are taken back. As a drafter: three passes over one token,
two of which are taken back. Medians of rounds behind 64 and behind 512 tokens, which take turns; the same without what
is kept of the text, where every pass computes all of it.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from statistics import median

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import cuts  # noqa: E402
import transformers  # noqa: E402

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.model import ModelContext  # noqa: E402

EARLY, LATE = 64, 512  # tokens
FAMILIES = [
    *("mamba", "falcon_mamba", "mamba2", "rwkv", "xlstm", "jamba", "bamba", "zamba", "zamba2", "falcon_h1"),
    *("granitemoehybrid", "nemotron_h", "qwen3_next", "olmo_hybrid", "lfm2", "recurrent_gemma"),
]


def as_target(context: ModelContext) -> None:
    base = context.length
    context.extend([5, 6, 7, 8], 4)
    context.rewind(base + 2)


def as_drafter(context: ModelContext) -> None:
    base = context.length
    for token in (5, 6, 7):
        context.extend([token], 1)
    context.rewind(base + 1)


def seconds(
    model: TransformersModel, play: Callable[[ModelContext], None], use_cache: bool, rounds: int
) -> list[float]:
    """Medians of a round behind EARLY and behind LATE tokens."""
    contexts = [model.open(use_cache=use_cache) for _ in (EARLY, LATE)]
    for context, length in zip(contexts, (EARLY, LATE), strict=True):
        context.extend([(37 * place + 5) % 300 + 3 for place in range(length)], 1)
    taken: list[list[float]] = [[], []]
    for turn in range(rounds + 2):
        for context, times in zip(contexts, taken, strict=True):
            begin = time.perf_counter()
            play(context)
            if turn >= 2:
                times.append(time.perf_counter() - begin)
    return [median(times) for times in taken]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", default=FAMILIES, metavar="family")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    print(f"| family | a block is | target, ms at {EARLY} | at {LATE} | ratio | drafter, ratio | recomputed, ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in options.families:
        model = TransformersModel(cuts.tiny(name, context=2 * LATE))
        way = "recomputed" if not model.rewindable else "single passes" if model.single_tokens else "one pass"
        early, late = seconds(model, as_target, True, options.rounds)
        first, last = seconds(model, as_drafter, True, options.rounds)
        without, whole = seconds(model, as_target, False, max(1, options.rounds // 5))
        print(
            f"| {name} | {way} | {1e3 * early:.1f} | {1e3 * late:.1f} | {late / early:.2f} | {last / first:.2f} | "
            f"{whole / without:.1f} |",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
