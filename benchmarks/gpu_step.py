"""What does a captured pass cost on this GPU? Our kernels and transformers' layers, beside the floor of the memory.

    python benchmarks/gpu_step.py [--tokens 1,4] [--text 128] [--profile] [--set _AHEAD=256]

Random weights in the shapes of `gpu.py`, batch 1. Milliseconds are medians over series of replays of one CUDA graph.
The floor is reading the weights once at the speed of a device copy. `--set` tries another value of a constant of
`backends/gpu_model.py`; `--profile` lists the kernels of a pass with their mean times (those that start early
overlap). Where torchao is installed, transformers' layers with its weight-only quantization are captured too. "off by"
is the root mean square distance of a block's logits from those of the same weights in float32.
Without a GPU the tiny shape is the default.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Callable, Sequence
from functools import partial

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402
from dialled_pair import SHAPES, DialledPair, add_pair, listed, whole  # noqa: E402
from gpu import Contest, captured_rounds, copy_bytes_per_second, weight_bytes  # noqa: E402
from transformers import PreTrainedModel  # noqa: E402

from specdec_tui.backends import gpu_model  # noqa: E402
from specdec_tui.backends.causal_lm import OpenStatic, TransformersModel  # noqa: E402
from specdec_tui.backends.model import StaticSequence, bucket  # noqa: E402
from specdec_tui.backends.static_model import StaticContext  # noqa: E402
from specdec_tui.decoding.device_run import SPARE  # noqa: E402

REPLAYS = 3
BLOCK = 8  # tokens whose logits are compared


def ways(model: TransformersModel) -> dict[str, OpenStatic]:
    """How a pass of a model can be computed."""
    found: dict[str, OpenStatic] = {
        "transformers": partial(StaticContext, model.model, model.forward, model.context_length)
    }
    if gpu_model.fits(model.model):
        found["ours"] = gpu_model.opener(model.model, model.forward, model.context_length)
    return found


def quantized_ways(network: PreTrainedModel) -> dict[str, Callable[[], OpenStatic]]:
    """The same with weight-only quantization by torchao; each changes the network for good."""
    try:
        from torchao.quantization import (  # type: ignore[import-not-found]
            Int4WeightOnlyConfig,
            Int8WeightOnlyConfig,
            quantize_,
        )
    except ImportError:
        return {}

    def quantized(config: object) -> OpenStatic:
        quantize_(network, config)
        model = TransformersModel(network)
        return partial(StaticContext, network, model.forward, model.context_length)

    return {
        "torchao int8": lambda: quantized(Int8WeightOnlyConfig()),
        "torchao int4": lambda: quantized(Int4WeightOnlyConfig()),
    }


class Distance:
    """How far a way's logits are from those in float32, over the last tokens of a text."""

    def __init__(self, model: PreTrainedModel, text: list[int], tokens: int) -> None:
        self._text, self._tokens = torch.tensor(text, device=model.device), tokens
        exact = model if model.dtype is torch.float32 else copy.deepcopy(model).float()
        with torch.inference_mode():
            self._logits = exact(self._text[None], logits_to_keep=tokens).logits[0]

    def of(self, open_static: OpenStatic) -> float:
        begin = len(self._text) - self._tokens
        sequence = open_static(bucket(len(self._text) + SPARE))
        sequence.prefill(self._text[:begin])
        at = torch.tensor([begin], device=self._text.device)
        logits = sequence.extend(self._text[begin:], at, self._tokens)
        return float((logits - self._logits).square().mean().sqrt().item())


def one_pass(sequence: StaticSequence, ids: torch.Tensor, begin: torch.Tensor) -> None:
    sequence.extend(ids, begin, 1)


def profile(play: Callable[[], None]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(REPLAYS):
            play()
        torch.cuda.synchronize()
    for event in sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)[:10]:
        mean = event.self_device_time_total / event.count
        if mean:
            print(f"    {event.count // REPLAYS:>5} x {mean:8.2f} µs  {event.key[:70]}", flush=True)


def assign(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    if not isinstance(getattr(gpu_model, name, None), int):
        raise argparse.ArgumentTypeError(f"'{name}' is no whole number of backends/gpu_model.py")
    return name, int(value)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_pair(parser)
    parser.add_argument("--tokens", type=listed(whole(1)), default=[1, 4], help="numbers of tokens of a pass")
    parser.add_argument("--text", type=whole(2), default=128, help="tokens held before the pass")
    parser.add_argument("--set", type=assign, action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    for name, value in options.set:
        setattr(gpu_model, name, value)
    device = torch.device(options.device)
    speed, programs = copy_bytes_per_second(device), captured_rounds(device)
    pair = DialledPair(SHAPES[options.shape], options.device, getattr(torch, options.dtype))
    contest = Contest(pair, options.text, programs)
    prompt = [(37 * i + 5) % pair.shape.vocab for i in range(options.text)]
    print(f"copy {speed / 1e9:.0f} GB/s, {options.text} tokens of text", flush=True)
    for name, model in (("target", contest.target), ("drafter", contest.drafter)):
        floor = weight_bytes(model.model) / speed
        distance = Distance(model.model, prompt, min(BLOCK, len(prompt) - 1))
        sides: dict[str, Callable[[], OpenStatic]] = {side: lambda way=way: way for side, way in ways(model).items()}
        for side, make in {**sides, **quantized_ways(model.model)}.items():
            try:
                model._static = make()
                off = distance.of(model._static)
                seconds = [contest.pass_seconds(model, prompt, tokens) for tokens in options.tokens]
            except Exception as error:  # a library that cannot be captured must not cost the other sides
                print(f"{name:<8} {side:<13} {type(error).__name__}: {str(error)[:200]}", flush=True)
                continue
            told = "  ".join(f"{t}: {1000 * s:.3f} ms" for t, s in zip(options.tokens, seconds, strict=True))
            told += f"   floor {1000 * floor:.3f} ms, {floor / seconds[0]:.0%}, off by {off:.3g}"
            print(f"{name:<8} {side:<13} {told}", flush=True)
            if options.profile and device.type == "cuda":
                sequence = model.open_static(bucket(options.text + SPARE))
                begin, ids = torch.tensor([options.text], device=device), torch.tensor(prompt[:1], device=device)
                profile(programs.capture(partial(one_pass, sequence, ids, begin), [begin]))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
