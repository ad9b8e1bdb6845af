"""What does a pass cost on this CPU? Transformers' layers against ours, beside the floor of the memory.

    python benchmarks/cpu_step.py [--gamma 4] [--context 100] [--repeat 15]

For target and drafter of the built-in pair, packed on our side: milliseconds for a pass over one token and over γ+1,
medians of turns taken alternately, so that a slow second of the machine hits both. The floor is the
time it takes to read the weights once, at the speed at which this machine reads memory.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402
from transformers import LlamaForCausalLM, PreTrainedModel  # noqa: E402

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.demo import drafter_file, target_file  # noqa: E402
from specdec_tui.backends.gguf.config import config_of  # noqa: E402
from specdec_tui.backends.gguf.expanded import state_of  # noqa: E402
from specdec_tui.backends.gguf.files import GgufFile  # noqa: E402
from specdec_tui.backends.lean.model import LeanModel  # noqa: E402
from specdec_tui.backends.model import CausalModel  # noqa: E402

IN_A_ROW = 4


def bytes_per_second() -> float:
    """The best of ten reads of 512 MB with all threads."""
    memory = torch.ones(1 << 27)
    times = [seconds(memory.sum) for _ in range(11)]
    return memory.numel() * memory.element_size() / min(times)


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def passes(model: CausalModel, context_tokens: int, tokens: int) -> Callable[[], float]:
    """A function that times a pass over `tokens` behind a context: the mean of a few in a row, as in a round."""
    context = model.open(capacity=context_tokens + tokens)
    context.extend([(37 * i + 5) % model.vocab_size for i in range(context_tokens)], 1)
    ids = [(91 * i + 7) % model.vocab_size for i in range(tokens)]

    def once() -> float:
        needed = 0.0
        for _ in range(IN_A_ROW):
            needed += seconds(lambda: context.extend(ids, tokens))
            context.rewind(context_tokens)
        return needed / IN_A_ROW

    return once


def sides_of(path: Path) -> tuple[PreTrainedModel, LeanModel]:
    """The model of a GGUF file on transformers' layers, expanded, and on ours, packed."""
    file = GgufFile(path)
    config = config_of(file)
    plain = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state_of(file, config, torch.float32))
    return plain, LeanModel.of_file(plain, file)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gamma", type=int, default=4)
    parser.add_argument("--context", type=int, default=100, help="tokens held before the pass")
    parser.add_argument("--repeat", type=int, default=15)
    options = parser.parse_args()
    speed = bytes_per_second()
    print(f"{torch.get_num_threads()} threads, memory is read at {speed / 1e9:.1f} GB/s")
    print(f"{'model':<8} {'tokens':>6} {'transformers ms':>16} {'ours ms':>8} {'times':>6} {'floor ms':>9}")
    for name, file in (("target", target_file(lambda step: None)), ("drafter", drafter_file())):
        plain, lean = sides_of(file)
        sides: list[CausalModel] = [TransformersModel(plain), lean]
        floor = lean.memory_bytes / speed
        for tokens in (1, options.gamma + 1):
            before, after = (passes(side, options.context, tokens) for side in sides)
            pairs = [(before(), after()) for _ in range(options.repeat + 3)][3:]
            theirs, ours = (1000 * median(times) for times in zip(*pairs, strict=True))
            line = f"{name:<8} {tokens:>6} {theirs:>16.1f} {ours:>8.2f} {theirs / ours:>6.1f} {1000 * floor:>9.2f}"
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
