"""Any Hugging Face causal language model as the decoding loop wants it: `TransformersModel`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import torch
from transformers import PreTrainedModel

from specdec_tui.backends import compiled_model
from specdec_tui.backends.cache import RewindableCache, cache_argument, keeps_only_keys_and_values
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.contexts import CachedContext, RecomputedContext
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.generate_probe import Inputs, input_device, inputs_of_generate
from specdec_tui.backends.gpu import model as gpu_model
from specdec_tui.backends.model import ModelContext, StaticSequence, bucket
from specdec_tui.backends.rotations import Forwarding, LengthContext, LengthRotations, Turned
from specdec_tui.backends.state_context import Keeping, keeping
from specdec_tui.backends.states import States
from specdec_tui.backends.static_model import STATES, StaticContext, is_spread, why_not_static

OpenStatic = Callable[[int], StaticSequence]

REFERENCE_BYTES = 1 << 28  # logits of a reference pass that are held at once

_TRIAL = 24  # tokens
_STATIC_TRIALS = (_TRIAL, 300)  # tokens; the second text needs another capacity
# Ids that every vocabulary has.
_PROBE, _PROBE_WRONG = (1, 3, 2, 4), (4, 0)


def computed_in(model: PreTrainedModel) -> torch.dtype:
    """What a model computes in; int8 for weights that bitsandbytes quantized to 8 or 4 bits.

    Its kernels round by what else is in the block: on a CPU the logits of one token and of the
    same token in a block of 8 differed by up to 1.7 (8 bits) and 0.3 (4 bits), in float32.
    """
    if getattr(model, "is_loaded_in_8bit", False) or getattr(model, "is_loaded_in_4bit", False):
        return torch.int8
    return model.dtype


class TransformersModel:
    """A `CausalModel` over a loaded transformers model (any device map, any quantization).

    `rewindable` says whether its contexts keep a cache; without one they recompute, with the
    same logits. `single_tokens`: its code reads more than one token only at the beginning of a text, so
    that a pass over drafts is as many passes. Making an instance runs a few tokens through the model to
    find that out, and what `generate` gives it beside the text: `inputs`.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model.eval()
        config = model.config.get_text_config(decoder=True)
        self._context_length = context_length_of(config)
        # Hooks of accelerate replace `model.forward`: the class has the true signature.
        forward = type(model).forward
        self._cache_name = cache_argument(forward)
        self._keeps_some = "logits_to_keep" in inspect.signature(forward).parameters
        self._input_device = input_device(model)
        self._static: OpenStatic | None = None
        self.static_note = ""
        self._rotations = LengthRotations.of(model)
        self.inputs: Inputs = inputs_of_generate(model, self._context_length)
        expected = self.forward(_PROBE, keep=2)
        self._vocab_size, self._device = expected.shape[-1], expected.device
        self._takes_places = "position_ids" in inspect.signature(forward).parameters
        self._keeping: Keeping | None = None
        self.rewindable = (
            self._cache_name is not None and keeps_only_keys_and_values(config) and self._probe_rewind(expected)
        )
        if not self.rewindable:
            self._keeping = keeping(self.model, self, self._is_exact)
            self.rewindable = self._keeping is not None
        self.single_tokens = self._keeping is not None and self._keeping.at_once

    @property
    def vocab_size(self) -> int:
        return self._vocab_size

    @property
    def context_length(self) -> int | None:
        return self._context_length

    @property
    def device(self) -> torch.device:
        return self._device

    @property
    def dtype(self) -> torch.dtype:
        """See `computed_in`."""
        return computed_in(self.model)

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> ModelContext:
        if self._context_length is not None:
            capacity = min(capacity, self._context_length)
        cached = use_cache and self.rewindable

        def part(model: Forwarding) -> ModelContext:
            if not cached:
                return RecomputedContext(model)
            if self._keeping is not None:
                return self._keeping.context(model, capacity)
            return CachedContext(model, RewindableCache(capacity))

        rotations = self._rotations
        if rotations is None:
            return part(self)
        return LengthContext(
            rotations,
            lambda until: part(Turned(self, rotations, until)),
            recomputes=not cached,
            at_once=cached and self.single_tokens,
        )

    def reference(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> Iterator[torch.Tensor]:
        """See `model.Referenced`."""
        text, begin = [*prompt_ids, *ids], len(prompt_ids)
        if self._rotations is None:
            alone = self._keeping is not None and self._keeping.steps
            yield from self._step_by_step(text, begin) if alone else self._whole(text, begin, len(text))
            return
        self._rotations.refresh()
        switch = self._rotations.switch
        if self._rotations.starts_over:
            turn = min(max(begin, switch + 1), len(text))
            yield from self._whole(text[:turn], begin, turn)
            yield from self._whole(text, turn, len(text))
        else:
            yield from self._step_by_step(text, begin)
        self._rotations.refresh()

    def rounding(self, prompt_ids: Sequence[int], ids: Sequence[int]) -> float | None:
        """See `model.Rounding`: the text at once, against token by token."""
        if self.dtype is not torch.int8 or not self.rewindable:
            return None
        text, begin, furthest = [*prompt_ids, *ids], len(prompt_ids), 0.0
        # States may lie in the model, where only a context keeps those of two passes apart.
        steps = self._step_by_step(text, begin) if self._keeping is None else self._stepped_context(text, begin)
        for whole, stepped in zip(self.reference(prompt_ids, ids), steps, strict=True):
            best = whole.topk(min(10, len(whole))).indices
            moved = (whole - stepped)[best]
            furthest = max(furthest, float(moved.amax() - moved.amin()))
        return furthest

    def _whole(self, text: Sequence[int], begin: int, end: int) -> Iterator[torch.Tensor]:
        """Logits [vocab_size] before each of the tokens from `begin` to `end`, of passes without a cache."""
        rows = max(1, REFERENCE_BYTES // (4 * self._vocab_size))
        for start in range(begin, end, rows):
            stop = min(start + rows, end)
            yield from self.forward(text[: stop - 1], stop - start)

    def _step_by_step(self, text: Sequence[int], begin: int) -> Iterator[torch.Tensor]:
        """As `generate` has them: the prompt in one pass, then token by token, over transformers' own cache."""
        name, cache, fed = self._cache_name or "", None, text[:begin]
        for place in range(begin, len(text)):
            with torch.inference_mode():
                inputs = torch.tensor([fed], dtype=torch.long, device=self._input_device)
                places = self._places(len(fed), place - len(fed), cached=True)
                found = self.model(inputs, use_cache=True, **places, **({} if cache is None else {name: cache}))
            cache = found[name]
            yield found.logits[0, -1].float()
            fed = [text[place]]

    def _stepped_context(self, text: Sequence[int], begin: int) -> Iterator[torch.Tensor]:
        context, fed = self.open(capacity=len(text)), text[:begin]
        for place in range(begin, len(text)):
            yield context.extend(fed, 1)[0]
            fed = [text[place]]

    def open_static(self, capacity: int) -> StaticSequence:
        """See `model.StaticModel`. The first call finds out which passes give the model's logits, fastest first."""
        if self._static is None:
            self._static = self._agreeing_static(bucket(capacity))
        return self._static(bucket(capacity))

    def _agreeing_static(self, capacity: int) -> OpenStatic:
        reason = why_not_static(self.model) if self._keeping is None else STATES  # not each config declares them
        if reason:
            raise ValueError(reason)
        why, told = "", False
        if self._device.type == "cuda":
            why = gpu_model.why_not(self.model)
            told = not why or self.dtype is not torch.float32  # for which no kernels are meant
            try:
                if not why:
                    fast = gpu_model.opener(self.model, self.forward, self._context_length)
                    if self._static_difference(fast) <= 0:
                        return fast
                    why = "the GPU kernels do not give its logits here"
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # compilers fail in ways of their own, and transformers' layers need none
                why = f"the GPU kernels fail ({type(error).__name__}: {first_line(error)}) here"
            if is_spread(self.model):
                raise ValueError(f"it is spread over several GPUs, where our kernels alone are captured: {why}")
        plain = partial(StaticContext, self.model, self.forward, self._context_length)
        try:
            excess = self._static_difference(plain)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a model's own code, written for other caches, fails in any way
            fault = f"{type(error).__name__}: {first_line(error)}"
            raise ValueError(f"its code does not work over a cache of fixed size ({fault})") from None
        if excess > 0:
            raise ValueError(f"its logits would differ by {excess:.2g} more than rounding explains")
        compiled = None
        if self._device.type == "cuda":
            compiled, fault = compiled_model.opener(self.model, self.forward, self._context_length, capacity)
            if told:
                how = "compiled" if compiled else "which are slower"
                more = "" if compiled or fault == why else f"; they are not compiled: {fault}"
                self.static_note = f"captured over transformers' layers, {how}: {why}{more}"
        return compiled or plain

    def _static_difference(self, open_static: OpenStatic) -> float:
        """By how much logits of passes over texts, begun and taken back, miss those of the texts as a whole.

        Two texts, with room for others: what a model does may depend on the place, and wrongly on the room.
        """
        return max(self._difference_over(open_static, length) for length in _STATIC_TRIALS)

    def _difference_over(self, open_static: OpenStatic, length: int) -> float:
        length = min(length, self._context_length or length)
        ids = [(37 * i + 1) % self._vocab_size for i in range(length)]
        expected = self.forward(ids, length)
        context = open_static(bucket(length))
        device = context.card.device
        tokens = torch.tensor(ids, device=device)
        known = max(1, length - _TRIAL // 2)
        cut = (known + length) // 2
        first = context.prefill(tokens[:known])
        rows = [
            context.extend(tokens[begin:end], torch.tensor([begin], device=device), end - begin)
            for begin, end in ((known, length), (known, cut), (cut, cut + 1), (cut + 1, length))
            if begin < end
        ]
        scale = max(1.0, expected.abs().max().item())
        bound = (1e-3 if self.dtype is torch.float32 else 0.3) * scale
        return _differ(torch.cat([first, *rows[1:]]), expected[known - 1 :].to(device)) - bound

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def forward(self, ids: Sequence[int], keep: int, cache: RewindableCache | States | None = None) -> torch.Tensor:
        """Logits [keep, vocab_size], float32, after each of the last `keep` ids; `cache` is extended by all of them."""
        return self.forward_rows([ids], keep, cache)[0]

    @torch.inference_mode()
    def forward_rows(
        self, rows: Sequence[Sequence[int]], keep: int, cache: RewindableCache | States | None = None
    ) -> torch.Tensor:
        """The same of texts that go on by equally many ids, one to a row: [rows, keep, vocab_size]."""
        arguments: dict[str, Any] = {"use_cache": cache is not None}
        if isinstance(cache, States):
            arguments |= cache.begin()
        elif cache is not None and self._cache_name is not None:
            arguments[self._cache_name] = cache
        if self._keeps_some:
            arguments["logits_to_keep"] = keep
        inputs, count = torch.tensor(rows, dtype=torch.long, device=self._input_device), len(rows[0])
        first = 0 if cache is None else cache.length if isinstance(cache, States) else cache.get_seq_length()
        arguments |= self._places(count, first, cached=isinstance(cache, States))
        found = self.model(inputs, **arguments)
        if isinstance(cache, States):
            cache.end(found, count)
        logits: torch.Tensor = found.logits
        # The slice matters where the model computed logits for every position.
        return logits[:, -keep:].float()

    def _places(self, count: int, first: int, *, cached: bool) -> dict[str, torch.Tensor]:
        """Places are told where `generate` tells others than the model takes: Bamba's code counts each pass from 0."""
        if not self.inputs.numbered and not (cached and self._takes_places):
            return {}
        return {"position_ids": torch.arange(first, first + count, device=self._input_device)[None]}

    def _probe_rewind(self, expected: torch.Tensor) -> bool:
        """Feed, rewind, feed again: is it as if the rewound tokens had never been?

        Catches what the config does not tell: states kept outside of our cache, and models
        that cannot take it. The same blocks are compared, so that rounding is the same too; the
        logits of the whole sequence (`expected`) round differently in half precision and in int8.
        """
        try:
            cache = RewindableCache()
            self.forward(_PROBE[:2], 1, cache)
            before = self.forward(_PROBE[2:], 2, cache)
            cache.rewind(2)
            self.forward(_PROBE_WRONG, 1, cache)
            cache.rewind(2)
            after = self.forward(_PROBE[2:], 2, cache)
        except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
            return False
        scale, bound = max(1.0, expected.abs().max().item()), 1e-3 if self._is_exact else 0.3
        return _differ(before, after) <= 1e-4 * scale and _differ(before, expected) <= bound * scale

    @property
    def _is_exact(self) -> bool:
        """Whether its rounding is that of float32."""
        return self.dtype is torch.float32 and not getattr(self.model, "is_quantized", False)

    def check_room(self, length: int) -> None:
        """ValueError when a context of `length` tokens is longer than the model was made for."""
        if self._context_length is not None and length > self._context_length:
            raise ValueError(f"{length} tokens do not fit the context length of {self._context_length}")


def _differ(one: torch.Tensor, other: torch.Tensor) -> float:
    return (one - other).abs().max().item()
