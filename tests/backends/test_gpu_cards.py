"""A model spread over cards: passes of the GPU's kernels have the bits that they have on one.

On a GPU, or with Triton and TRITON_INTERPRET=1 (slowly, in NumPy) on a CPU; elsewhere there is nothing to run them.
The cards are one device here, of which the interpreter knows whose memory is whose.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from cards_apart import Apart, Carried, Table
from family_variants import DENSE, VARIANTS, made
from gpu_passes import CAPACITY, DEVICE, extended, short_cut, text
from interpreted import GPU, need_triton
from torch import Tensor
from transformers import PreTrainedModel

need_triton()

from specdec_tui.backends.cards import Card  # noqa: E402
from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu import streams  # noqa: E402
from specdec_tui.backends.gpu.laid import Where, where_of  # noqa: E402
from specdec_tui.decoding.device_round import DeviceRound  # noqa: E402
from specdec_tui.decoding.round_state import Plan  # noqa: E402
from specdec_tui.decoding.sampling import Sampler  # noqa: E402

ONE, OTHER = (Card(torch.device(DEVICE, 0) if GPU else torch.device(DEVICE), number) for number in (0, 1))
BEGIN = 20
BORDERS = {
    "one": "1 111 1", "in the middle": "1 122 2", "head of the first": "1 112 1", "embedding apart": "2 112 2",
    "there and back": "1 121 1", "head apart": "1 111 2",
}  # fmt: skip
UNTIED = ("LlamaConfig", DENSE)
# How the stream is normed, and where.
KINDS = [
    ("llama", "Folded", "in the middle"), ("llama", "Folded", "embedding apart"), ("llama", "Folded", "head apart"),
    ("gpt2", "Folded", "head of the first"), ("falcon grouped", "Folded", "there and back"),
    ("cohere2", "Folded", "in the middle"), ("qwen3_moe", "Folded", "in the middle"),
    ("olmo3", "Branched", "in the middle"), ("olmo3", "Branched", "head of the first"),
    ("olmo3", "Apart", "there and back"), ("qwen2", "Apart", "in the middle"),
]  # fmt: skip


@pytest.fixture(autouse=True)
def _several_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_model.launches, "attention_cut", short_cut)


def where(border: str) -> Where:
    """Of three layers: the cards of embedding, layers and head."""
    embedding, *layers, head = ((None, ONE, OTHER)[int(sign)] for sign in BORDERS[border].replace(" ", ""))
    assert embedding and head
    return Where(embedding, tuple(card for card in layers if card), head)


def context_of(model: PreTrainedModel, border: str) -> gpu_model.GpuContext:
    found = gpu_model.opener(model, TransformersModel(model).forward, CAPACITY, where(border))(CAPACITY)
    assert len(found._parts) == {"one": 1, "in the middle": 2, "head apart": 2}.get(border, len(found._parts))
    return found


def network(variant: str) -> PreTrainedModel:
    return made(*VARIANTS[variant]).to(DEVICE)


def logits(
    context: gpu_model.GpuContext, step: Callable[[], Any] = nullcontext, blocks: Sequence[int] = (3, 1)
) -> Tensor:
    """Of blocks behind a prefilled text."""
    ids, begin = text(), BEGIN
    context.prefill(ids[:BEGIN])
    rows = []
    for count in blocks:
        with step():
            rows.append(extended(context, ids, begin, count))
        begin += count
    return torch.cat(rows)


@pytest.mark.parametrize(("variant", "way", "border"), KINDS)
def test_passes_over_cards_have_the_bits_of_one(
    variant: str, way: str, border: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_model, "kind_of", lambda weights: getattr(streams, way))
    model = network(variant)
    one, over = (logits(context_of(model, kind)) for kind in ("one", border))
    assert one.isfinite().all() and torch.equal(over, one)


def owned(context: gpu_model.GpuContext, apart: Apart) -> None:
    """Each card's weights, keys and values are its own."""
    laid = context._laid
    apart.owned(laid.embedded, laid.whole.embedding)
    for card, part in zip(laid.cards, context._parts, strict=True):
        for layer in part.weights.layers:
            apart.owned(card, [layer.qkv.weight, layer.output.weight, layer.gate_up.weight, layer.down.weight])
            apart.owned(card, [norm.weight for norm in layer.norms if norm])
        apart.owned(card, [part.keys, part.values, part.arrived, part.weights.head.weight])


@pytest.mark.skipif(GPU, reason="the interpreter tells what kernels take")
@pytest.mark.parametrize(
    ("variant", "way", "border"), [kind for kind in KINDS if kind[0] in ("llama", "olmo3", "falcon grouped")]
)
def test_no_kernel_takes_memory_of_another_card(
    variant: str, way: str, border: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.runtime import interpreter  # type: ignore[import-not-found]

    monkeypatch.setattr(gpu_model, "kind_of", lambda weights: getattr(streams, way))
    apart, run = Apart(), interpreter.GridExecutor.__call__

    def checked(grid: Any, *args: Any, **kwargs: Any) -> None:
        apart.used((args, kwargs))
        with torch.utils._python_dispatch._disable_current_modes():
            run(grid, *args, **kwargs)

    monkeypatch.setattr(interpreter.GridExecutor, "__call__", checked)
    context = context_of(network(variant), border)
    owned(context, apart)
    logits(context, apart.step)
    assert apart.crossings >= 3
    laid = context._laid
    context._laid = replace(laid, cards=laid.cards[:1] * len(laid.cards))
    with pytest.raises((AssertionError, interpreter.InterpreterError), match="memory of"):
        logits(context, apart.step)


@pytest.mark.parametrize(("way", "border"), [("Folded", "in the middle"), ("Apart", "embedding apart")])
def test_a_copy_that_is_left_out_gives_other_logits(way: str, border: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_model, "kind_of", lambda weights: getattr(streams, way))
    context = context_of(network("llama"), border)
    whole = logits(context, Carried().step, [2])
    # The ids and their place, where they go over, or rows of the embedding; then the place and the stream.
    count = {"Folded": 2 + 4, "Apart": 2 + 2}[way]
    for lost in range(count):
        assert not torch.equal(logits(context, Carried(lost).step, [2]), whole), lost
    assert torch.equal(logits(context, Carried(count).step, [2]), whole), "no more is taken over"


@pytest.mark.parametrize("border", ["in the middle", "embedding apart"])
def test_rounds_of_a_spread_target_and_a_drafter_elsewhere_are_those_of_one_card(border: str) -> None:
    found, model = [], network("llama")
    for kind, card in (("one", ONE), (border, ONE)):
        plan = Plan(2, 96, Sampler(), "", (), 1, None, 96)
        made = DeviceRound(context_of(model, kind), Table(card, 2, 96), plan)
        made.target.prefill(text()[:BEGIN])
        made.begin(text()[: BEGIN + 1].tolist(), BEGIN, CAPACITY - 8, [], 7)
        carried = Carried()
        rows = []
        for _ in range(2):
            with carried.step():
                made.step()
            rows += made._state.out[:, 2:].flatten().tolist()
        found.append(rows)
    assert carried.crossings == 2 * {"in the middle": 4, "embedding apart": 4}[border]
    assert found[1] == pytest.approx(found[0], abs=0, nan_ok=True)


def test_cards_are_those_that_the_modules_lie_on() -> None:
    from specdec_tui.backends.decoder import Decoder, describe

    model = made(*UNTIED)
    model.model.layers[2].to("meta")
    model.lm_head.to("meta")
    decoder = describe(model)
    assert isinstance(decoder, Decoder)
    cpu, meta = Card(torch.device("cpu")), Card(torch.device("meta"))
    assert where_of(model, decoder) == Where(cpu, (cpu, cpu, meta), meta)
    assert gpu_model.why_not(model.half()) == "a part of it is not on a GPU"
    model.model.layers[1].mlp.to("meta")
    with pytest.raises(ValueError, match=r"^its layers lie on several devices each$"):
        where_of(model, decoder)
