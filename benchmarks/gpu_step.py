"""What does a captured pass cost on this GPU? Our kernels and transformers' layers, beside the floor of the memory.

    python benchmarks/gpu_step.py [--shapes dense] [--tokens 1,4] [--text 128] [--warm 12] [--json FILE] [--profile]
    python benchmarks/gpu_step.py --shapes llama --text 128,4096,32768 --fill

Random weights in public shapes (`gpu_shapes.py`; sets: dense, mixtures, drafters, llama, tiny), batch 1, one process,
one model after the other. Milliseconds are medians over series of replays of one CUDA graph; passes over each number
of tokens take turns. The floor is what the pass must read (every weight once; of an embedding the tokens' rows, of a
mixture the experts that are chosen, of keys and values what the layers see) at the speed of a device copy, measured
in the same run. "off by" is the root mean square distance of a block's logits from those of the same weights in
float32; "alone": whether a token by itself has the logits, bit for bit, that it has in the block. "MB beyond" is what
the way takes of the GPU's memory beyond the loaded model: graphs, work space, keys and values (as the allocator
reserves it: below zero where a load has left holes that the way fills). Bars are told under the
table; those of shares were asked of an H200. `--forms plain,int8,int4`: the same shape also with weights that
bitsandbytes quantized; transformers' layers then compute with the same numbers expanded, to which "off by" is told.

`--fill` puts random numbers in the place of a text's keys and values, so that a long text costs no prefill. `--warm N`
compiles the kernels of all shapes in N processes first: Triton keeps them. `--set MODULE.NAME=VALUE` tries another
value of a constant of a module of `backends`, in this process and those. `--profile` lists the kernels of a pass with
their mean times (those that start early overlap). Without a GPU the tiny shapes are the default.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from specdec_tui.backends.threads import prepare_threads

prepare_threads()

import torch  # noqa: E402
from dialled_pair import listed, whole  # noqa: E402
from gpu import SERIES, captured_rounds, copy_bytes_per_second, environment  # noqa: E402
from gpu_forms import FORMS, narrow, quantize  # noqa: E402
from gpu_shapes import MODELS, SETS, build, filling, reads, weight_bytes, widened  # noqa: E402
from gpu_step_report import Steps, judged, summary, table  # noqa: E402

from specdec_tui.backends.cache import RewindableCache  # noqa: E402
from specdec_tui.backends.causal_lm import OpenStatic, TransformersModel  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu import tuning  # noqa: E402
from specdec_tui.backends.model import StaticSequence, bucket  # noqa: E402
from specdec_tui.backends.static_model import PREFILL_CHUNK, StaticContext  # noqa: E402
from specdec_tui.decoding.device_run import SPARE, Programs  # noqa: E402

ROOM = 256  # tokens that a run would write behind the text
WAYS = ("transformers", "ours")  # ours changes what the model's own weights are views of: it comes last
SERIES_SECONDS, MOST_IN_A_ROW = 0.03, 100
PROFILED = 3


Prefill = Callable[[Sequence[int], int, RewindableCache], torch.Tensor]


def opener(model: TransformersModel, way: str, forward: Prefill) -> OpenStatic | None:
    """What opens sequences of a model in a way, whose texts `forward` reads; None where it does not fit."""
    if way == "transformers":
        return partial(StaticContext, model.model, forward, model.context_length)
    return gpu_model.opener(model.model, forward, model.context_length) if gpu_model.fits(model.model) else None


class Text:
    """Some tokens held, and a block of `most` behind them, with its logits `exact` [most, vocab_size] in float32.

    These are of transformers' layers. `forward` reads the tokens held in their place where it is given.
    """

    def __init__(self, model: TransformersModel, held: int, most: int, forward: Prefill | None = None) -> None:
        self.held, self.most, self.capacity = held, most, bucket(held + ROOM + SPARE)
        ids = [(37 * i + 5) % model.vocab_size for i in range(held + most)]
        self.ids = torch.tensor(ids, device=model.device)
        self.begin = torch.tensor([held], device=model.device)
        cache, read = RewindableCache(len(ids)), forward or model.forward
        with widened(model.model):
            for begin in range(0, held, PREFILL_CHUNK):
                read(ids[begin : min(held, begin + PREFILL_CHUNK)], 1, cache)
            self.exact = model.forward(ids[held:], most, cache)

    def open(self, open_static: OpenStatic) -> StaticSequence:
        sequence = open_static(self.capacity)
        sequence.prefill(self.ids[: self.held])
        return sequence


class Pass:
    """A captured pass over the first `tokens` of a text's block, and the logits that it left."""

    def __init__(self, sequence: StaticSequence, text: Text, tokens: int, programs: Programs) -> None:
        self._sequence, self._begin, self._ids = sequence, text.begin, text.ids[text.held :][:tokens]
        self.logits = torch.empty(0)
        self.play = programs.capture(self._step, [text.begin])

    def _step(self) -> None:
        self.logits = self._sequence.extend(self._ids, self._begin, len(self._ids))


def seconds_of(passes: dict[int, Pass], device: torch.device) -> dict[int, float]:
    """Of a pass over each number of tokens; they take turns."""
    counts, times = dict[int, int](), {tokens: list[float]() for tokens in passes}
    for tokens, one in passes.items():
        mean = series(one.play, 3, device)
        counts[tokens] = max(2, min(MOST_IN_A_ROW, round(SERIES_SECONDS / mean)))
    for _ in range(SERIES):
        for tokens, one in passes.items():
            times[tokens].append(series(one.play, counts[tokens], device))
    return {tokens: median(found) for tokens, found in times.items()}


def series(play: Callable[[], None], count: int, device: torch.device) -> float:
    """Mean seconds of a pass of several in a row, by the GPU's clock where there is one."""
    if device.type == "cuda":
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        play()  # keeps the GPU busy while the next ones are queued
        first.record()
        for _ in range(count):
            play()
        last.record()
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000 / count
    begin = time.perf_counter()
    for _ in range(count):
        play()
    return (time.perf_counter() - begin) / count


def taken(device: torch.device) -> int | None:
    """Bytes of the GPU's memory that are taken for good; None elsewhere."""
    if device.type != "cuda":
        return None
    gc.collect()
    torch.cuda.synchronize(device)
    torch.cuda.empty_cache()
    return int(torch.cuda.memory_reserved(device))


class Bench:
    """Measures shapes into `steps`. `speed` in bytes per second."""

    def __init__(self, options: argparse.Namespace, steps: Steps, speed: float) -> None:
        self._options, self._steps, self._speed = options, steps, speed
        self._device, self._dtype = torch.device(options.device), getattr(torch, options.dtype)
        self._programs = captured_rounds(self._device)

    def form(self, name: str, form: str) -> None:
        """A shape in a form. Where it is quantized, transformers' layers compute with the same numbers, expanded."""
        options, most = self._options, max(self._options.tokens)
        network = build(name, self._device, self._dtype)
        twin = network
        if form != "plain":
            twin = build(name, self._device, self._dtype)
            quantize(network, form, twin)
        dense = TransformersModel(twin)
        limit = dense.context_length or max(options.text) + most
        exact = filling(dense, self._dtype, torch.float32) if options.fill else None
        texts = [Text(dense, held, most, exact) for held in options.text if held + most <= limit]
        narrow(twin, self._dtype)
        models = {"transformers": dense, "ours": dense if twin is network else TransformersModel(network)}
        for way in options.ways:
            self._way({"shape": name, "form": form, "way": way}, models[way], texts)

    def _way(self, place: dict[str, Any], model: TransformersModel, texts: Sequence[Text]) -> None:
        before = taken(self._device)
        forward = filling(model, self._dtype, self._dtype) if self._options.fill else model.forward
        try:
            open_static = opener(model, place["way"], forward)
            if open_static is None:
                self._steps.add("failed", place | {"why": "does not fit"})
                return
            for text in texts:
                row = self._row(model, text, open_static)
                now = row.pop("taken")
                beyond = None if now is None or before is None else now - before
                self._steps.add("rows", place | {"text": text.held} | row | {"beyond": beyond})
        except Exception as error:  # one way must not cost the others their time on the device
            self._steps.add("failed", place | {"why": f"{type(error).__name__}: {error}"[:400]})

    def _row(self, model: TransformersModel, text: Text, open_static: OpenStatic) -> dict[str, Any]:
        options = self._options
        sequence = text.open(open_static)
        passes = {tokens: Pass(sequence, text, tokens, self._programs) for tokens in sorted(options.tokens)}
        seconds = seconds_of(passes, self._device)
        few, many = passes[min(passes)], passes[max(passes)]
        logits = many.logits
        read = {tokens: reads(model, tokens, text.held) for tokens in passes}
        if options.profile and self._device.type == "cuda":
            profile(few.play)
        return {
            "bytes": read[min(passes)].all,
            "weight_bytes": weight_bytes(model.model, min(passes)),
            "floor": {str(tokens): one.all / self._speed for tokens, one in read.items()},
            "seconds": {str(tokens): found for tokens, found in seconds.items()},
            "off": float((logits - text.exact).square().mean().sqrt()),
            "alone": bool(torch.equal(few.logits, logits[: len(few.logits)])),
            "taken": taken(self._device),
        }


def profile(play: Callable[[], None]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            play()
        torch.cuda.synchronize()
    for event in sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)[:12]:
        mean = event.self_device_time_total / event.count
        if mean:
            print(f"    {event.count // PROFILED:>5} x {mean:8.2f} µs  {event.key[:70]}", flush=True)


def warm(shapes: Sequence[str], processes: int, options: argparse.Namespace) -> None:
    """Compile the kernels of all shapes side by side; what fails is told again where it is measured."""
    begin = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        kinds = itertools.product(shapes, options.forms, options.tokens)
        works = {pool.submit(compiled, *kind, options): ", ".join(map(str, kind)) for kind in kinds}
        for work in as_completed(works):
            error = work.exception()
            told = f"{type(error).__name__}: {error}"[:200] if error else f"{work.result():.1f} s"
            print(f"compiled {works[work]}: {told}", flush=True)
    print(f"compiled all in {time.perf_counter() - begin:.1f} s", flush=True)


def compiled(name: str, form: str, tokens: int, options: argparse.Namespace) -> float:
    """Seconds to run a pass over `tokens` behind each text, over as few of a shape's layers as have all kernels.

    `options.other`: values of its config that are not the table's.
    """
    begin = time.perf_counter()
    tuning.MOST_SECONDS = 0.0  # what is timed beside other processes is no reason to choose
    for one in options.set:
        put(*one)
    device, dtype, layers = torch.device(options.device), getattr(torch, options.dtype), MODELS[name].kinds
    other = getattr(options, "other", {}).get(name, {})
    network = build(name, device, dtype, layers, **other)
    if form != "plain":
        quantize(network, form, build(name, device, dtype, layers, **other))
    model = TransformersModel(network)
    open_static = opener(model, "ours", model.forward)
    limit = model.context_length or max(options.text)
    for held in (held for held in options.text if open_static and held < limit):
        sequence = open_static(bucket(held + ROOM + SPARE))
        ids = torch.zeros(tokens, dtype=torch.int64, device=device)
        sequence.extend(ids, torch.tensor([0], device=device), tokens)
    model.synchronize()
    return time.perf_counter() - begin


def setting(text: str) -> tuple[str, str, int]:
    """For argparse: MODULE.NAME=VALUE of a constant that is a whole number."""
    place, _, value = text.partition("=")
    module, _, name = place.rpartition(".")
    try:
        if isinstance(getattr(importlib.import_module(f"specdec_tui.backends.{module}"), name), int):
            return module, name, int(value)
    except (ImportError, AttributeError, ValueError):
        pass
    raise argparse.ArgumentTypeError(f"'{text}' is not valid: give MODULE.NAME=VALUE, a whole number of backends/")


def put(module: str, name: str, value: int) -> None:
    setattr(importlib.import_module(f"specdec_tui.backends.{module}"), name, value)


def shapes_of(text: str) -> list[str]:
    """For argparse: names of shapes and of sets of them, separated by commas."""
    named = [shape for item in text.split(",") for shape in SETS.get(item, (item,))]
    for name in named:
        if name not in MODELS:
            raise argparse.ArgumentTypeError(f"'{name}' is not valid: give some of {', '.join([*SETS, *MODELS])}")
    return list(dict.fromkeys(named))


def way_of(text: str) -> str:
    if text not in WAYS:
        raise argparse.ArgumentTypeError(f"'{text}' is not valid: give some of {', '.join(WAYS)}")
    return text


def form_of(text: str) -> str:
    if text not in FORMS:
        raise argparse.ArgumentTypeError(f"'{text}' is not valid: give some of {', '.join(FORMS)}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=shapes_of, default=list(SETS["dense" if cuda else "tiny"]))
    parser.add_argument("--forms", type=listed(form_of), default=["plain"], help=",".join(FORMS))
    parser.add_argument("--ways", type=listed(way_of), default=list(WAYS), help=",".join(WAYS))
    parser.add_argument("--tokens", type=listed(whole(1)), default=[1, 4], help="numbers of tokens of a pass")
    parser.add_argument("--text", type=listed(whole(1)), default=[128], help="tokens held before the pass")
    parser.add_argument("--fill", action="store_true", help="random keys and values in the place of the texts' own")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--warm", type=whole(1), metavar="N", help="compile in N processes first")
    parser.add_argument("--seconds", type=float, default=480.0, help="what is not begun by then is left out")
    parser.add_argument("--json", type=Path, help="file that holds everything measured so far")
    parser.add_argument("--before", type=Path, help="such a file of an earlier run, whose shares are told too")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="MODULE.NAME=VALUE")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.seconds
    for one in options.set:
        put(*one)
    if options.warm:
        warm(options.shapes, options.warm, options)
    device = torch.device(options.device)
    speed = copy_bytes_per_second(device)
    steps = Steps(options.json, environment(device) | {"copy_bytes_per_second": speed})
    print(f"copy {speed / 1e9:.0f} GB/s", flush=True)
    bench = Bench(options, steps, speed)
    for name, form in itertools.product(options.shapes, options.forms):
        place = {"shape": name, "form": form, "way": ""}
        if time.monotonic() > deadline:
            steps.add("failed", place | {"why": "no time left"})
            continue
        try:
            bench.form(name, form)
        except Exception as error:  # nor one shape the others
            steps.add("failed", place | {"why": f"{type(error).__name__}: {error}"[:400]})
        taken(device)
    before = json.loads(options.before.read_text(encoding="utf-8"))["rows"] if options.before else ()
    print(f"\n{table(steps.rows, before)}\n{summary(judged(steps.rows))}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
