"""Which shape of drafter pays? The cost of a draft step on this CPU for shapes, with random weights.

    python benchmarks/drafter_shapes.py 256x4x4x768:0.711 256x2x4x1024:0.700 [--gamma 4]

A shape is width x layers x heads x MLP, then its acceptance rate, measured elsewhere. Steps are timed
as in a round, γ of them behind a pass of the demo target over γ+1 tokens; shapes take turns. The
predicted speedup is that of Leviathan et al. from acceptance, cost ratio c and verify ratio v.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig  # noqa: E402

from specdec_tui.backends.lean.model import LeanModel  # noqa: E402
from specdec_tui.backends.loading import load_pair  # noqa: E402
from specdec_tui.backends.model import ModelContext  # noqa: E402
from specdec_tui.decoding.costs import predicted_speedup  # noqa: E402
from specdec_tui.settings import ModelChoice  # noqa: E402

CONTEXT = 100


def candidate(text: str) -> tuple[str, tuple[int, ...], float]:
    """A shape's name, its four sizes and its acceptance rate."""
    name, _, alpha = text.partition(":")
    try:
        sizes = tuple(int(number) for number in name.split("x"))
        rate = float(alpha)
    except ValueError:
        sizes, rate = (), -1.0
    if len(sizes) != 4 or min(sizes) < 1 or not 0 <= rate <= 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not WIDTHxLAYERSxHEADSxMLP:ALPHA with an alpha from 0 to 1")
    if sizes[0] % (2 * sizes[2]) or sizes[3] % 2:
        raise argparse.ArgumentTypeError(f"'{text}': the width must be an even multiple of the heads, the MLP even")
    return name, sizes, rate


def at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def random_drafter(width: int, layers: int, heads: int, mlp: int, vocab_size: int) -> tuple[LeanModel, int]:
    """A drafter of a shape whose weights are bfloat16 numbers, as a shipped one's are, and its size in bytes."""
    config = LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=width,
        intermediate_size=mlp,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        tie_word_embeddings=True,
    )
    model = AutoModelForCausalLM.from_config(config).to(torch.bfloat16).float().eval()
    return LeanModel.of(model), 2 * model.num_parameters()


def seconds(context: ModelContext, tokens: int) -> float:
    begin = time.perf_counter()
    context.extend([17] * tokens, tokens)
    return time.perf_counter() - begin


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", type=candidate, metavar="WIDTHxLAYERSxHEADSxMLP:ALPHA")
    parser.add_argument("--gamma", type=at_least_one, default=4)
    parser.add_argument("--repeat", type=at_least_one, default=25)
    options = parser.parse_args()
    gamma = options.gamma
    target = load_pair(ModelChoice(device="cpu"), lambda step: None).target
    verifier = target.open()
    verifier.extend([5] * CONTEXT, 1)
    drafters = {}
    for shape, (width, layers, heads, mlp), alpha in options.shapes:
        model, size = random_drafter(width, layers, heads, mlp, target.vocab_size)
        context = model.open()
        context.extend([5] * CONTEXT, 1)
        drafters[shape] = (context, alpha, size)
    steps: dict[str, list[float]] = {shape: [] for shape in drafters}
    single, block = [], []
    for turn in range(options.repeat + 3):
        for shape, (context, _, _) in drafters.items():
            needed = seconds(verifier, gamma + 1)
            verifier.rewind(CONTEXT)
            drafting = sum(seconds(context, 1) for _ in range(gamma)) / gamma
            context.rewind(CONTEXT)
            plain = seconds(verifier, 1)
            verifier.rewind(CONTEXT)
            if turn >= 3:
                block.append(needed)
                single.append(plain)
                steps[shape].append(drafting)
    step, v = median(single), median(block) / median(single)
    print(f"target: {1000 * step:.1f} ms a token, v = {v:.2f} at γ = {gamma}")
    print(f"{'shape':<18} {'MB':>5} {'ms a draft':>11} {'c':>6} {'α':>6} {'predicted speedup':>18}")
    for shape, (_, alpha, size) in drafters.items():
        cost = median(steps[shape]) / step
        speedup = predicted_speedup(alpha, gamma, cost, v)
        print(f"{shape:<18} {size / 1e6:>5.1f} {1000 * cost * step:>11.2f} {cost:>6.3f} {alpha:>6.3f} {speedup:>18.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
