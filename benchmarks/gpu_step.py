"""What does a captured pass cost on this GPU? Our kernels and transformers' layers, beside the floor of the memory.

    python benchmarks/gpu_step.py [--shapes all] [--tokens 1,4] [--text 128] [--warm 12] [--json FILE] [--profile]
    python benchmarks/gpu_step.py --shapes llama --text 128,4096,32768 --fill

Random weights in public shapes (`gpu_shapes.py`; sets: all, dense, small, large, mixtures, drafters, llama, tiny),
batch 1, one process, one model after the other. Milliseconds are medians over series of replays of one CUDA graph;
passes over each number of tokens take turns. The floor is what the pass must read (every weight once; of an embedding
the tokens' rows, of a mixture the experts that are chosen, of keys and values what the layers see) at the speed of a
device copy, measured in the same run.

Of the 64 tokens behind the text, read in blocks of the most tokens: "off by" is the root mean square distance of the
logits from those of the same weights in float32, "of theirs" that in distances of transformers' own forward pass in
the dtype of the weights, over the same text. "alone": whether a token by itself has the logits, bit for bit, that it
has in a block. "ids": of 32 tokens that our kernels write greedily, how many are the first choice of transformers'
forward pass over the same text, how many are near-ties of it (within 6 of its distances), how many are neither.

Memory, in bytes that are allocated beyond the weights of the loaded model: "held" is what stays while the passes can be
played (keys and values, tables, work space and all that the graphs' pools have), "keys" what of it are keys and values
by their sizes, "peak" the most at any time from the opening of the sequence to the last pass, a prefill among it.

Bars are told under the table; those of shares were asked of an H200. `--forms plain,int8,int4`: the same shape also
with quantized weights; transformers' layers then compute with the same numbers expanded, to which "off by" is told;
gptq, gptq8 and fp8 are made without a library. `--fill` puts random numbers in the place of a text's keys and values,
so that a long text costs no prefill. `--warm N` compiles the kernels of all shapes in N processes first, the tiles that
are tried among them: Triton keeps them. `--seconds`: no shape is begun behind them; a run that is cut off by SIGTERM or
ctrl+c tells what it has. `--set MODULE.NAME=VALUE` tries another value of a constant of a module of `backends`, in this
process and those.
`--profile` lists the kernels of a pass with their mean times (those that start early overlap). Without a GPU the tiny
shapes are the default.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
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
from gpu_memory import Memory, emptied  # noqa: E402
from gpu_shapes import MODELS, SETS, build, filling, key_bytes, reads, weight_bytes  # noqa: E402
from gpu_step_report import Steps, judged, summary, table  # noqa: E402
from gpu_texts import ROOM, ROWS, Prefill, Text  # noqa: E402

from specdec_tui.backends.causal_lm import OpenStatic, TransformersModel  # noqa: E402
from specdec_tui.backends.decoder import Decoder, describe  # noqa: E402
from specdec_tui.backends.gpu import laid, tuning  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu.packed.model import pack_quantized  # noqa: E402
from specdec_tui.backends.gpu.weights import fuse  # noqa: E402
from specdec_tui.backends.model import StaticSequence, bucket  # noqa: E402
from specdec_tui.backends.static_model import StaticContext  # noqa: E402
from specdec_tui.decoding.device_run import SPARE, Programs  # noqa: E402

WAYS = ("transformers", "ours")  # ours changes what the model's own weights are views of: it comes last
SERIES_SECONDS, MOST_IN_A_ROW = 0.03, 100
PROFILED = 3


def opener(model: TransformersModel, way: str, forward: Prefill) -> OpenStatic:
    """What opens sequences of a model in a way that fits, whose texts `forward` reads."""
    if way == "transformers":
        return partial(StaticContext, model.model, forward, model.context_length)
    return gpu_model.opener(model.model, forward, model.context_length)


class Pass:
    """A captured pass over the first `tokens` of a text's block, and the logits that it left."""

    def __init__(self, sequence: StaticSequence, text: Text, tokens: int, programs: Programs) -> None:
        self._sequence, self._begin, self._ids = sequence, text.begin, text.ids[text.held : text.held + tokens]
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


class Bench:
    """Measures shapes into `steps`. `speed` in bytes per second."""

    def __init__(self, options: argparse.Namespace, steps: Steps, speed: float) -> None:
        self._options, self._steps, self._speed = options, steps, speed
        self.device, self._dtype = torch.device(options.device), getattr(torch, options.dtype)
        self._programs = captured_rounds(self.device)

    def form(self, name: str, form: str) -> None:
        """A shape in a form. Where it is quantized, transformers' layers compute with the same numbers, expanded."""
        options, most = self._options, max(self._options.tokens)
        network = build(name, self.device, self._dtype)
        twin, refused = network, ""
        if form != "plain":
            twin = build(name, self.device, self._dtype)
            quantize(network, form, twin)
            refused = pack_quantized(network)
        dense = TransformersModel(twin)
        behind = max(ROWS, most)
        limit = dense.context_length or max(options.text) + behind
        exact = filling(dense, self._dtype, torch.float32) if options.fill else None
        texts = [Text(dense, held, exact) for held in options.text if held + behind <= limit]
        narrow(twin, self._dtype)
        for text in texts:
            text.judge(dense, self._forward(dense))
        models = {"transformers": dense, "ours": dense if twin is network else TransformersModel(network)}
        for way in options.ways:
            self._way({"shape": name, "form": form, "way": way}, models[way], dense, texts, refused)

    def _forward(self, model: TransformersModel) -> Prefill:
        return filling(model, self._dtype, self._dtype) if self._options.fill else model.forward

    def _way(
        self,
        place: dict[str, Any],
        model: TransformersModel,
        dense: TransformersModel,
        texts: Sequence[Text],
        refused: str,
    ) -> None:
        """`refused`: why its quantized weights are not read by our kernels, if so."""
        if place["way"] == "ours" and (why := refused or gpu_model.why_not(model.model)):
            self._steps.add("failed", place | {"why": why})
            return
        try:
            for text in texts:
                self._steps.add("rows", place | {"text": text.held} | self._row(place["way"], model, dense, text))
        except Exception as error:  # one way must not cost the others their time on the device
            self._steps.add("failed", place | {"why": f"{type(error).__name__}: {error}"[:400]})

    def _row(self, way: str, model: TransformersModel, dense: TransformersModel, text: Text) -> dict[str, Any]:
        options, most, memory = self._options, max(self._options.tokens), Memory(self.device)
        sequence = text.open(opener(model, way, self._forward(model)))
        passes = {tokens: Pass(sequence, text, tokens, self._programs) for tokens in sorted(options.tokens)}
        seconds = seconds_of(passes, self.device)
        few, many = passes[min(passes)], passes[most]
        logits = many.logits
        found = {"peak": memory.peak, "held": memory.held, "keys": key_bytes(model, text.capacity)}
        read = {tokens: reads(model, tokens, text.held) for tokens in passes}
        if options.profile and self.device.type == "cuda":
            profile(few.play)
        return {
            "bytes": read[min(passes)].all,
            "weight_bytes": weight_bytes(model.model, min(passes)),
            "floor": {str(tokens): one.all / self._speed for tokens, one in read.items()},
            "seconds": {str(tokens): found for tokens, found in seconds.items()},
            "off": text.off(sequence, most),
            "theirs": text.theirs,
            "alone": bool(torch.equal(few.logits, logits[: len(few.logits)])),
            "ids": asdict(text.compared(dense, self._forward(dense), text.written(sequence)))
            if way == "ours"
            else None,
        } | found


def profile(play: Callable[[], None]) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            play()
        torch.cuda.synchronize()
    for event in sorted(found.key_averages(), key=lambda event: -event.self_device_time_total)[:12]:
        mean = event.self_device_time_total / event.count
        if mean:
            print(f"    {event.count // PROFILED:>5} x {mean:8.2f} µs  {event.key[:70]}", flush=True)


def warm(shapes: Sequence[str], processes: int, seconds: float, options: argparse.Namespace) -> None:
    """Compile the kernels of all shapes side by side; what fails is told again where it is measured."""
    begin = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        kinds = [(*each, None) for each in itertools.product(shapes, options.forms, options.tokens)]
        tiles = range(tuning.MOST_TILES)
        kinds += [(*each[:1], "plain", *each[1:]) for each in itertools.product(shapes, (1, tuning.BLOCK), tiles)]
        works = {pool.submit(compiled, *kind, options): ", ".join(map(str, kind)) for kind in kinds}
        failed = 0
        try:
            for work in as_completed(works, timeout=seconds):
                if (error := work.exception()) is not None:
                    failed += 1
                    print(f"not compiled: {works[work]}: {type(error).__name__}: {error}"[:200], flush=True)
        except TimeoutError:
            print("not all was compiled in time", flush=True)
        pool.shutdown(cancel_futures=True)
    print(f"compiled {len(works) - failed} passes in {time.perf_counter() - begin:.1f} s", flush=True)


def compiled(name: str, form: str, tokens: int, tile: int | None, options: argparse.Namespace) -> None:
    """Run a pass over `tokens` behind each text, over as few of a shape's layers as have all kernels.

    `tile`: the number of those that are tried, None for the ones that are taken untried. `options.other`: values of its
    config that are not the table's.
    """
    tuning.MOST_SECONDS = 0.0  # what is timed beside other processes is no reason to choose
    for one in options.set:
        put(*one)
    device, dtype, layers = torch.device(options.device), getattr(torch, options.dtype), MODELS[name].kinds
    other = getattr(options, "other", {}).get(name, {})
    network = build(name, device, dtype, layers, **other)
    if form != "plain":
        quantize(network, form, build(name, device, dtype, layers, **other))
        pack_quantized(network)
    if not gpu_model.fits(network):
        return
    model = TransformersModel(network)
    limit = model.context_length or max(options.text)
    open_static = opener(model, "ours", model.forward) if tile is None else with_tiles(model, tile)
    for held in (held for held in options.text if held < limit):
        sequence = open_static(bucket(held + ROOM + SPARE))
        ids = torch.zeros(tokens, dtype=torch.int64, device=device)
        sequence.extend(ids, torch.tensor([0], device=device), tokens)
    model.synchronize()


def with_tiles(model: TransformersModel, number: int) -> OpenStatic:
    """Sequences whose products are cut by the tiles of a number among those that are tried."""
    decoder = describe(model.model)
    assert isinstance(decoder, Decoder)
    weights = fuse(model.model, decoder, bucket(ROOM))
    tiles = tuning.numbered(tuning.shapes_of(weights), number)
    return partial(gpu_model.GpuContext, laid.whole(weights, tiles), model.forward)


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
    parser.add_argument("--shapes", type=shapes_of, default=list(SETS["all" if cuda else "tiny"]))
    parser.add_argument("--forms", type=listed(form_of), default=["plain"], help=",".join(FORMS))
    parser.add_argument("--ways", type=listed(way_of), default=list(WAYS), help=",".join(WAYS))
    parser.add_argument("--tokens", type=listed(whole(1)), default=[1, 4], help="numbers of tokens of a pass")
    parser.add_argument("--text", type=listed(whole(1)), default=[128], help="tokens held before the pass")
    parser.add_argument("--fill", action="store_true", help="random keys and values in the place of the texts' own")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    parser.add_argument("--warm", type=whole(1), metavar="N", help="compile in N processes first")
    parser.add_argument("--seconds", type=float, default=480.0, help="what is not begun by then is left out")
    parser.add_argument("--trials", type=float, default=45.0, help="seconds of trials of tiles for a model, at most")
    parser.add_argument("--json", type=Path, help="file that holds everything measured so far")
    parser.add_argument("--before", type=Path, help="such a file of an earlier run, whose shares are told too")
    parser.add_argument("--set", type=setting, action="append", default=[], metavar="MODULE.NAME=VALUE")
    parser.add_argument("--profile", action="store_true")
    options = parser.parse_args(arguments)
    deadline = time.monotonic() + options.seconds
    for one in options.set:
        put(*one)
    tuning.MOST_SECONDS = options.trials
    if options.warm:
        warm(options.shapes, options.warm, options.seconds / 2, options)
    device = torch.device(options.device)
    speed = copy_bytes_per_second(device)
    steps = Steps(options.json, environment(device) | {"copy_bytes_per_second": speed})
    print(f"copy {speed / 1e9:.0f} GB/s", flush=True)
    bench = Bench(options, steps, speed)
    before = json.loads(options.before.read_text(encoding="utf-8"))["rows"] if options.before else ()
    ended = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(bench, options, steps, deadline)
    except KeyboardInterrupt:
        print("cut off", flush=True)
    finally:
        signal.signal(signal.SIGTERM, ended)
    print(f"\n{table(steps.rows, before)}\n{summary(judged(steps.rows))}")
    return 0


def measure(bench: Bench, options: argparse.Namespace, steps: Steps, deadline: float) -> None:
    for name, form in itertools.product(options.shapes, options.forms):
        place = {"shape": name, "form": form, "way": ""}
        if time.monotonic() > deadline:
            steps.add("failed", place | {"why": "no time left"})
            continue
        try:
            bench.form(name, form)
        except Exception as error:  # nor one shape the others
            steps.add("failed", place | {"why": f"{type(error).__name__}: {error}"[:400]})
        emptied(bench.device)


if __name__ == "__main__":
    raise SystemExit(main())
