"""The kernels of mixtures of experts as functions of tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_tui.backends.decoder import Experts
from specdec_tui.backends.gpu import launches
from specdec_tui.backends.gpu.launches import Follow, Read, Rules
from specdec_tui.backends.gpu.tiles import power
from specdec_tui.backends.gpu.weights import Affine, ExpertWeights


@dataclass(frozen=True)
class Room:
    """What a mixture of experts writes and reads again.

    `scores` [tokens, rows of the router] float32, the last the shared expert's where there is one, `active` [tokens ·
    slots, inner], `shared` [tokens, its width].
    """

    scores: Tensor
    active: Tensor
    shared: Tensor

    @staticmethod
    def of(kind: Experts, tokens: int, dtype: torch.dtype, device: torch.device) -> Room:
        return Room(
            torch.empty(tokens, kind.count + bool(kind.shared_inner), dtype=torch.float32, device=device),
            torch.empty(tokens * kind.chosen, kind.inner, dtype=dtype, device=device),
            torch.empty(tokens, kind.shared_inner, dtype=dtype, device=device),
        )


def mix(
    rules: Rules,
    own: Read,
    weights: ExpertWeights,
    kind: Experts,
    activation: str,
    scale: float,
    room: Room,
    x: Tensor,
    follow: Follow | None,
) -> None:
    """Add to x what a mixture of experts makes of what is read, times `scale`."""
    launches.product(rules, own, weights.router, room.scores)
    if kind.shared_inner:
        launches.gated_product(rules, own, weights.shared_gate_up, room.shared, activation)
    gated_experts(rules, own, weights.gate_up, weights.in_turn, kind, activation, room)
    add_experts(rules, room.active, weights.down, kind, room, x, None if kind.shared_inner else follow, scale)
    if kind.shared_inner:
        add_experts(rules, room.shared, weights.shared_down, kind, room, x, follow, scale)


def gated_experts(
    rules: Rules,
    own: Read,
    linear: Affine,
    in_turn: bool,
    kind: Experts,
    activation: str,
    room: Room,
) -> None:
    """room.active: what the experts of the highest scores make of what is read by gate and up."""
    from specdec_tui.backends.gpu import experts

    (count, both, columns), tokens = linear.weight.shape, len(own.x)
    tile = rules.tiles.of_experts(True, both // 2, columns, kind.chosen)
    biased, programs = linear.bias.numel() > 0, -(-both // (2 * tile.rows))
    experts.gated_experts[(tokens * kind.chosen, programs)](
        own.x, own.x if own.stream is None else own.stream, linear.weight, linear.bias if biased else linear.weight,
        room.scores, room.active, count, kind.chosen, room.scores.shape[1], both // 2, columns, in_turn,
        own.stream is not None, rules.epsilon, biased, activation, kind.limit, kind.alpha, tile.pieces, tile.rows,
        tile.columns, power(columns), max(32, power(count)), _by_warp(own.x.device), rules.overlap,
        num_warps=tile.warps, num_stages=tile.stages, **rules.launch,
    )  # fmt: skip


def add_experts(
    rules: Rules,
    x: Tensor,
    linear: Affine,
    kind: Experts,
    room: Room,
    y: Tensor,
    follow: Follow | None,
    scale: float,
) -> None:
    """y [tokens, hidden] += what the experts of the highest scores make of x [tokens · slots, inner], by their shares.

    A matrix [hidden, inner] stands for the shared expert, with x [tokens, inner]. `gated_experts` must be the kernel
    before: the scores are read before that one ends.
    """
    from specdec_tui.backends.gpu import experts

    shared = linear.weight.dim() == 2
    (rows, columns), slots = linear.weight.shape[-2:], 1 if shared else kind.chosen
    tile = rules.tiles.of_experts(False, rows, columns, slots)
    biased = linear.bias.numel() > 0
    experts.add_experts[(len(y), -(-rows // tile.rows))](
        x, linear.weight, linear.bias if biased else linear.weight, room.scores, y, follow.norm if follow else y,
        follow.x if follow else y, kind.count, slots, room.scores.shape[1], shared,
        kind.normed or kind.scoring == "chosen", scale if shared else kind.scale * scale, rows, columns,
        rules.norm_offset, biased, follow is not None, tile.pieces, tile.pieces * power(slots), tile.rows,
        tile.columns, tile.early, tile.ahead, max(32, power(kind.count)), _by_warp(y.device), 32 * tile.warps,
        rules.overlap, num_warps=tile.warps, num_stages=tile.stages, **rules.launch,
    )  # fmt: skip


def _by_warp(device: torch.device) -> bool:
    """Whether a device's warps reduce numbers over their lanes."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)
