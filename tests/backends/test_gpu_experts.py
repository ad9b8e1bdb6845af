"""Mixtures of experts by the GPU's kernels; see test_gpu_model.py for where this runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from family_variants import VARIANTS, made
from interpreted import GPU, need_triton
from plain_pass import ACTIVATIONS

need_triton()

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.decoder import Experts  # noqa: E402
from specdec_tui.backends.gpu import expert_launches, streams  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu.expert_launches import Room  # noqa: E402
from specdec_tui.backends.gpu.launches import Follow, Read, Rules, overlaps  # noqa: E402
from specdec_tui.backends.gpu.tiles import Tiles  # noqa: E402
from specdec_tui.backends.gpu.weights import NONE, Affine, ExpertWeights  # noqa: E402

DEVICE = torch.device("cuda" if GPU else "cpu")
MIXTURES = [name for name, (_, values) in VARIANTS.items() if "num_experts_per_tok" in values]
IDS = [(37 * i + 5) % 96 for i in range(24)]
RULES = Rules(overlaps(DEVICE), 1e-6, 0.0, False, Tiles())


def opened(name: str, dtype: torch.dtype) -> tuple[TransformersModel, gpu_model.GpuContext]:
    network = made(*VARIANTS[name])
    for parameter in network.parameters():
        parameter.data = parameter.data.to(dtype)
    network.to(DEVICE)
    model = TransformersModel(network)
    return model, gpu_model.opener(network, model.forward, 64)(64)


def test_there_are_mixtures_of_all_families() -> None:
    assert {VARIANTS[name][0] for name in MIXTURES} == {
        f"{name}Config" for name in ("Mixtral", "Qwen2Moe", "Qwen3Moe", "Olmoe", "GptOss")
    }


@pytest.mark.skipif(GPU, reason="a GPU multiplies float32 with 10 bits: other experts may be chosen")
@pytest.mark.parametrize(
    ("name", "folds"), [(name, False) for name in MIXTURES] + [("qwen2_moe", True), ("gpt_oss", True)]
)
def test_passes_in_single_precision_give_the_logits_of_the_model(
    name: str, folds: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folds:
        monkeypatch.setattr(streams, "FOLDING", (torch.float32,))
    model, context = opened(name, torch.float32)
    expected = model.forward(IDS, len(IDS))
    tokens = torch.tensor(IDS, device=DEVICE)
    context.prefill(tokens[:20])
    got = [context.extend(tokens[at : at + n], torch.tensor([at], device=DEVICE), n) for at, n in ((20, 3), (23, 1))]
    bound = 2e-5 * expected.abs().max().item()
    assert (torch.cat(got) - expected[20:]).abs().max().item() <= bound


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "gpt_oss"])
def test_a_token_in_a_block_has_the_numbers_of_a_token_alone(name: str) -> None:
    _, context = opened(name, torch.float16)
    tokens = torch.tensor(IDS, device=DEVICE)
    context.prefill(tokens[:12])
    block = context.extend(tokens[12:15], torch.tensor([12], device=DEVICE), 3)
    alone = [context.extend(tokens[at : at + 1], torch.tensor([at], device=DEVICE), 1) for at in range(12, 15)]
    assert block.isfinite().all()
    assert torch.equal(block, torch.cat(alone))


@pytest.mark.parametrize("name", ["mixtral", "qwen2_moe", "gpt_oss"])
def test_models_of_half_precision_fit_and_go_on_working(name: str) -> None:
    network = made(*VARIANTS[name]).half().to(DEVICE)
    assert not gpu_model.why_not(network)
    model = TransformersModel(network)
    before, bytes_before = model.forward(IDS, len(IDS)), stored(network)
    gpu_model.opener(network, model.forward, 64)
    assert torch.allclose(model.forward(IDS, len(IDS)), before, atol=1e-2 * before.abs().max().item())
    assert stored(network) == bytes_before


def test_shared_experts_that_are_packed_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_model, "PackedLinear", torch.nn.Linear)
    assert gpu_model.why_not(made(*VARIANTS["qwen2_moe"]).half()) == "its shared experts are quantized"
    assert gpu_model.why_not(made(*VARIANTS["qwen3_moe"]).half()) == ""


def stored(network: torch.nn.Module) -> int:
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in network.parameters()}
    return sum(storages.values())


def chosen_by(scores: list[list[float]], **fields: Any) -> tuple[torch.Tensor, list[list[int]]]:
    """By scores [tokens, count]: shares [tokens, count], 0 for those not chosen, and the experts by slot.

    Expert e adds its share, times what its slot is given, to column e.
    """
    matrix = torch.tensor(scores, device=DEVICE)
    tokens, count = matrix.shape
    kind = Experts(**({"count": count, "chosen": 2, "inner": 16, "scoring": "softmax", "normed": False} | fields))
    room = Room(matrix, torch.zeros(tokens * kind.chosen, 16, device=DEVICE), matrix)
    down = torch.zeros(count, 96, 16, device=DEVICE)
    for expert in range(count):
        down[expert, expert, 0] = 1.0

    def added(column: list[float]) -> torch.Tensor:
        room.active[:, 0] = torch.tensor(column * tokens)
        y = torch.zeros(tokens, 96, device=DEVICE)
        expert_launches.add_experts(RULES, room.active, Affine(down, NONE), kind, room, y, None, 3.0)
        return y[:, :count].cpu()

    shares, slots = added([1.0] * kind.chosen), added([float(slot) for slot in range(kind.chosen)])
    order = (slots / shares).round()
    return shares, [
        [experts.index(slot) for slot in range(kind.chosen)] for experts in order.nan_to_num(nan=-1.0).int().tolist()
    ]


def test_of_equal_scores_the_first_are_chosen() -> None:
    _, chosen = chosen_by([[1.0, 2.0, 2.0, 2.0, 0.0], [0.5] * 5, [0.0, 1.0, 0.0, 0.0, 1.0]])
    assert chosen == [[1, 2], [0, 1], [1, 4]]


def test_many_experts_are_ordered_by_score() -> None:
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(3, 70, generator=generator)
    assert chosen_by(scores.tolist(), chosen=8)[1] == scores.topk(8).indices.tolist()


@pytest.mark.parametrize(
    ("fields", "among"),
    [({}, False), ({"normed": True}, True), ({"scoring": "chosen"}, True), ({"scale": 2.0}, False)],
    ids=["all", "normed", "chosen", "scaled"],
)
def test_shares_are_those_of_a_softmax(fields: dict[str, Any], among: bool) -> None:
    scores = torch.tensor([0.5, 2.0, 1.0, -1.0])
    shares, chosen = chosen_by([scores.tolist()], **fields)
    expected = scores[[1, 2]].softmax(0) if among else scores.softmax(0)[[1, 2]]
    assert chosen == [[1, 2]]
    scale = 3.0 * fields.get("scale", 1.0)
    assert torch.allclose(shares[0, 1:3], expected * scale, rtol=2e-3 if GPU else 1e-6)
    assert not shares[0, ::3].any()


@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        (Experts(5, 3, 40, "softmax", False, scale=1.5), "gelu"),
        (Experts(5, 3, 40, "softmax", True, shared_inner=72), "silu"),
        (Experts(5, 1, 40, "chosen", False, limit=0.6, alpha=1.3), "silu"),
    ],
    ids=["three", "shared", "limited"],
)
def test_a_mixture_is_the_sum_of_its_experts(kind: Experts, activation: str) -> None:
    """Sizes that are no powers of two; biases, and gate and up in turn, where there is a limit."""
    hidden, tokens, limited = 48, 2, kind.limit > 0
    generator = torch.Generator().manual_seed(5)

    def drawn(*shape: int) -> torch.Tensor:
        return (torch.randn(*shape, generator=generator) * 0.4).to(DEVICE)

    def affine(*shape: int) -> Affine:
        return Affine(drawn(*shape), drawn(*shape[:-1]) if limited else NONE)

    nothing = Affine(NONE, NONE)
    shared = [affine(2 * kind.shared_inner, hidden), affine(hidden, kind.shared_inner)] if kind.shared_inner else []
    weights = ExpertWeights(
        affine(kind.count + bool(kind.shared_inner), hidden),
        affine(kind.count, 2 * kind.inner, hidden),
        affine(kind.count, hidden, kind.inner),
        limited,
        *(shared or [nothing, nothing]),
    )
    x, y, norm = drawn(tokens, hidden) * 3, drawn(tokens, hidden), drawn(hidden)
    expected = torch.stack([plain(weights, kind, activation, 0.7, *token) for token in zip(x, y, strict=True)])
    room = Room.of(kind, tokens, torch.float32, DEVICE)
    follow = Follow(norm, torch.zeros(tokens, hidden, device=DEVICE))
    expert_launches.mix(RULES, Read(x), weights, kind, activation, 0.7, room, y, follow)
    bound = (2e-2 if GPU else 1e-5) * expected.abs().max().item()
    assert (y - expected).abs().max().item() <= bound
    assert (follow.x - expected * norm).abs().max().item() <= bound


def plain(
    weights: ExpertWeights, kind: Experts, activation: str, scale: float, x: torch.Tensor, y: torch.Tensor
) -> torch.Tensor:
    """One token, from the description of `Experts`."""

    def linear(affine: Affine, x: torch.Tensor, *at: int) -> torch.Tensor:
        product = affine.weight[at] @ x
        return product + affine.bias[at] if affine.bias.numel() else product

    scores = linear(weights.router, x)
    shares, chosen = scores[: kind.count].softmax(0).topk(kind.chosen)
    if kind.normed or kind.scoring == "chosen":
        shares = shares / shares.sum()
    act = ACTIVATIONS[activation]
    y = y.clone()
    for expert, share in zip(chosen.tolist(), shares, strict=True):
        both = linear(weights.gate_up, x, expert)
        if kind.limit:
            gate, up = both[::2].clamp(max=kind.limit), both[1::2].clamp(-kind.limit, kind.limit)
            active = gate * torch.sigmoid(kind.alpha * gate) * (up + 1)
        else:
            active = act(both[: kind.inner]) * both[kind.inner :]
        y += scale * kind.scale * share * linear(weights.down, active, expert)
    if kind.shared_inner:
        both = linear(weights.shared_gate_up, x)
        active = act(both[: kind.shared_inner]) * both[kind.shared_inner :]
        y += scale * torch.sigmoid(scores[kind.count]) * linear(weights.shared_down, active)
    return y


def test_scores_that_are_not_numbers_choose_experts_that_exist() -> None:
    """Whatever was chosen, nothing outside the matrices is read, and the result is no number either."""
    count, hidden, inner = 4, 32, 16
    kind = Experts(count, 2, inner, "softmax", True)
    room = Room.of(kind, 1, torch.float32, DEVICE)
    x = torch.full((1, hidden), torch.nan, device=DEVICE)
    router = Affine(torch.ones(count, hidden, device=DEVICE), NONE)
    gate_up = Affine(torch.ones(count, 2 * inner, hidden, device=DEVICE), NONE)
    down = Affine(torch.ones(count, hidden, inner, device=DEVICE), NONE)
    weights = ExpertWeights(router, gate_up, down, False, Affine(NONE, NONE), Affine(NONE, NONE))
    y = torch.zeros(1, hidden, device=DEVICE)
    expert_launches.mix(RULES, Read(x), weights, kind, "silu", 1.0, room, y, None)
    assert y.isnan().all()
