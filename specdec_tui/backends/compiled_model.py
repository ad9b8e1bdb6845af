"""Passes over transformers' layers that torch compiles: for models on a GPU that no kernels of ours compute.

A layer is compiled, not the whole model: layers of one kind share what was compiled, so that it takes seconds however
many there are. For that they must not know which of them they are: while a pass runs, each has the number 0 and sees
a cache of its own alone. What comes out is compared with the layers as they are, for each size of a pass at its first
use; where it is something else, or fails, that size goes on uncompiled.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from specdec_tui.backends import cuda_graphs
from specdec_tui.backends.errors import first_line, is_out_of_memory
from specdec_tui.backends.gpu import launches
from specdec_tui.backends.model import bucket
from specdec_tui.backends.static_model import Forward, StaticContext

MOST_SECONDS = 45.0  # of compiling, for one model in one run; a layer that was begun is ended
MOST_NODES = 1000  # operations of a layer: with more the compiler takes minutes
MOST_KINDS = 4  # of layers in a model
FASTER = 0.97  # what a compiled pass may take of one that is not

_TEXT = 24  # tokens before the trial's
_REPLAYS, _SERIES = 8, 3
_NUMBER = "layer_idx"
_QUICKLY = {"compile_threads": 1, "triton.autotune_pointwise": False}  # no processes; each kernel in one form alone


class TooMuch(Exception):
    """A model takes the compiler too long."""


def why_not_compiled(model: PreTrainedModel) -> str:
    """Why the layers of a loaded model are not compiled; empty where that can be tried."""
    if launches.kernels() is None:
        return "there is no Triton"
    layers = layers_of(model)
    if not layers:
        return "its layers are not alike"
    return "its layers have hooks" if any("forward" in vars(layer) for layer in layers) else ""


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """The decoder's layers, where they are of one class."""
    count = model.config.get_text_config(decoder=True).num_hidden_layers
    for module in model.modules():
        if isinstance(module, nn.ModuleList) and len(module) == count and len({type(layer) for layer in module}) == 1:
            return list(module)
    return []


def _layer(layer: nn.Module, given: Sequence[Any], named: dict[str, Any]) -> Any:
    return type(layer).forward(layer, *given, **named)


def _fresh() -> Callable[..., Any]:
    """`_layer` as a function of its own: torch keeps few compiled forms of one code object."""
    code: CodeType = _layer.__code__.replace(co_name="compiled_layer")
    return FunctionType(code, _layer.__globals__)


class Layers:
    """The layers of a model, compiled by size of a pass: tokens and capacity. `why`: what last went wrong."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._layers = layers_of(model)
        self._numbered = [m for layer in self._layers for m in layer.modules() if isinstance(vars(m).get(_NUMBER), int)]
        self._compiled: dict[tuple[int, int], Callable[..., Any] | None] = {}
        self._seconds, self._refusal = 0.0, ""
        self.why = ""

    def logits(self, size: tuple[int, int], plain: Callable[[], Tensor], caches: tuple[Cache, list[Cache]]) -> Tensor:
        """Of a pass that `plain` makes over the layers as they are, whose cache is the first of `caches`.

        Those of a size that is not compiled yet are `plain`'s own.
        """
        if size not in self._compiled:
            if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
                return plain()
            return self._tried(size, plain, caches)
        call = self._compiled[size]
        if call is None:
            return plain()
        with self._replaced(call, caches):
            return plain()

    def is_compiled(self, size: tuple[int, int]) -> bool:
        return self._compiled.get(size) is not None

    def _tried(self, size: tuple[int, int], plain: Callable[[], Tensor], caches: tuple[Cache, list[Cache]]) -> Tensor:
        expected, begin = plain(), time.monotonic()
        self._compiled[size] = None
        if self._seconds > MOST_SECONDS:
            self.why = "it takes the compiler too long"
            return expected
        why = ""
        try:
            call = torch.compile(_fresh(), backend=self._backend(), fullgraph=True, dynamic=False)
            with self._replaced(call, caches), torch._inductor.config.patch(_QUICKLY):
                found = plain()
            if _differ(found, expected):
                why = "compiled they do not give its logits"
            else:
                self._compiled[size] = call
        except Exception as error:  # compilers fail in ways of their own
            if is_out_of_memory(error):
                raise
            own = getattr(error, "inner_exception", error)  # torch tells whose it is, then what
            why = self._refusal or f"the compiler fails ({type(own).__name__}: {first_line(own)})"
        self._seconds += time.monotonic() - begin
        if not why:
            return expected
        self.why = why
        return plain()  # whatever was written in the place of keys and values

    def _backend(self) -> Callable[..., Any]:
        compiler, kinds, self._refusal = torch._dynamo.lookup_backend("inductor"), 0, ""

        def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
            nonlocal kinds
            kinds += 1
            if kinds > MOST_KINDS or len(graph.graph.nodes) > MOST_NODES:
                self._refusal = "its layers are too many things to compile"
                raise TooMuch(self._refusal)
            return compiler(graph, inputs)

        return backend

    @contextmanager
    def _replaced(self, call: Callable[..., Any], caches: tuple[Cache, list[Cache]]) -> Iterator[None]:
        whole, own = caches
        numbers = [vars(module)[_NUMBER] for module in self._numbered]

        def through(layer: nn.Module, cache: Cache, /, *given: Any, **named: Any) -> Any:
            swapped = [cache if each is whole else each for each in given]
            return call(layer, swapped, {name: cache if each is whole else each for name, each in named.items()})

        try:
            for module in self._numbered:
                setattr(module, _NUMBER, 0)
            for layer, cache in zip(self._layers, own, strict=True):
                vars(layer)["forward"] = partial(through, layer, cache)
            yield
        finally:
            for layer in self._layers:
                vars(layer).pop("forward", None)
            for module, number in zip(self._numbered, numbers, strict=True):
                setattr(module, _NUMBER, number)


def _differ(found: Tensor, expected: Tensor) -> bool:
    """Whether logits differ by more than rounding explains; those that are no numbers do."""
    bound = 1e-3 if expected.dtype is torch.float32 else 0.3
    return not float((found.float() - expected.float()).abs().max()) <= bound * max(1.0, float(expected.abs().max()))


class CompiledContext(StaticContext):
    """A `StaticContext` whose layers are compiled."""

    def __init__(
        self, layers: Layers, model: PreTrainedModel, forward: Forward, context_length: int | None, capacity: int
    ) -> None:
        super().__init__(model, forward, context_length, capacity)
        self._compiled, self._own = layers, [Cache(layers=[layer]) for layer in self._layers]

    def _logits(self, ids: Tensor, arguments: dict[str, Any]) -> Tensor:
        plain = partial(super()._logits, ids, arguments)
        return self._compiled.logits((len(ids), self.capacity), plain, (self._cache, self._own))


def opener(
    model: PreTrainedModel, forward: Forward, context_length: int | None, capacity: int
) -> tuple[Callable[[int], CompiledContext] | None, str]:
    """What opens sequences over compiled layers where these are faster, else None and why not.

    That is tried by a pass over one token of a sequence of `capacity`, which a run may have use for.
    """
    if why := why_not_compiled(model):
        return None, why
    layers, embedding = Layers(model), model.get_input_embeddings().weight
    open_static = partial(CompiledContext, layers, model, forward, context_length)
    ids = torch.arange(_TEXT + 1, device=embedding.device) % len(embedding)
    begin, times = torch.tensor([_TEXT], device=embedding.device), []
    for kind in (open_static, partial(StaticContext, model, forward, context_length)):
        context = kind(max(capacity, bucket(_TEXT + 1)))
        context.prefill(ids[:_TEXT])
        context.extend(ids[_TEXT:], begin, 1)
        if layers.why:
            return None, layers.why
        try:
            times.append(captured_seconds(partial(_discard, context, ids[_TEXT:], begin), begin))
        except Exception as error:
            if is_out_of_memory(error):
                raise
            return None, f"a pass of it cannot be captured ({type(error).__name__}: {first_line(error)})"
    compiled, plain = times
    if not compiled <= FASTER * plain:
        return None, f"compiled they are no faster ({1000 * compiled:.2f} ms a token for {1000 * plain:.2f})"
    return open_static, ""


def _discard(context: StaticContext, ids: Tensor, begin: Tensor) -> None:
    context.extend(ids, begin, len(ids))


def captured_seconds(step: Callable[[], None], begin: Tensor) -> float:
    """Of a pass that begins at a place, in a CUDA graph: the least of a few series."""
    play = cuda_graphs.capture(step, [begin])
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    series = []
    for _ in range(_SERIES):
        play()
        first.record()
        for _ in range(_REPLAYS):
            play()
        last.record()
        last.synchronize()
        series.append(first.elapsed_time(last) / 1000 / _REPLAYS)
    return min(series)
