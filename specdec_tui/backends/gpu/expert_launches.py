"""The kernels of mixtures of experts as functions of tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from specdec_tui.backends.decoder import Experts
from specdec_tui.backends.gpu import launches
from specdec_tui.backends.gpu.launches import Follow, Read, Rules
from specdec_tui.backends.gpu.tiles import Tile, experts_down_tile, experts_tile, power, router_tile, tile_tokens
from specdec_tui.backends.gpu.weights import Affine, ExpertWeights


@dataclass(frozen=True)
class Room:
    """What a mixture of experts writes and reads again.

    Experts `chosen` [tokens, slots] int32, their `shares` [tokens, slots + 1] float32 (the last that of the shared
    expert), `scores` [tokens, rows of the router] float32, `active` [tokens · slots, inner], `shared` [tokens, its
    width]; `arrived` int32, of which the first is 0.
    """

    chosen: Tensor
    shares: Tensor
    scores: Tensor
    active: Tensor
    shared: Tensor
    arrived: Tensor

    @staticmethod
    def of(kind: Experts, tokens: int, dtype: torch.dtype, arrived: Tensor) -> Room:
        def empty(columns: int, dtype: torch.dtype, rows: int = tokens) -> Tensor:
            return torch.empty(rows, columns, dtype=dtype, device=arrived.device)

        return Room(
            empty(kind.chosen, torch.int32),
            empty(kind.chosen + 1, torch.float32),
            empty(kind.count + bool(kind.shared_inner), torch.float32),
            empty(kind.inner, dtype, tokens * kind.chosen),
            empty(kind.shared_inner, dtype),
            arrived,
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
    route(rules, own, weights.router, kind, room, scale)
    if kind.shared_inner:
        launches.gated_product(rules, own, weights.shared_gate_up, room.shared, activation)
    gated_experts(rules, own, weights.gate_up, weights.in_turn, kind, activation, room)
    add_experts(rules, room.active, weights.down, kind, room, x, None if kind.shared_inner else follow)
    if kind.shared_inner:
        add_experts(rules, room.shared, weights.shared_down, kind, room, x, follow)


def route(
    rules: Rules,
    own: Read,
    router: Affine,
    kind: Experts,
    room: Room,
    scale: float = 1.0,
    tile: Tile | None = None,
) -> None:
    """Choose the experts of each token; shares are times `scale`."""
    from specdec_tui.backends.gpu import experts

    tokens, (rows, columns) = len(own.x), router.weight.shape
    tile = tile or router_tile(columns, tokens)
    biased = router.bias.numel() > 0
    experts.route[(-(-rows // tile.rows),)](
        own.x, own.x if own.stream is None else own.stream, router.weight, router.bias if biased else router.weight,
        room.scores, room.chosen, room.shares, room.arrived, tokens, rows, columns, kind.count, kind.chosen,
        kind.normed or kind.scoring == "chosen", kind.scale * scale, scale, own.stream is not None, rules.epsilon,
        biased, tile.pieces, tile_tokens(tokens), tile.rows, tile.columns, tile.early, tile.ahead, power(columns),
        max(32, power(kind.count)), rules.overlap, num_warps=tile.warps, num_stages=tile.stages, **rules.launch,
    )  # fmt: skip


def gated_experts(
    rules: Rules,
    own: Read,
    linear: Affine,
    in_turn: bool,
    kind: Experts,
    activation: str,
    room: Room,
    tile: Tile | None = None,
) -> None:
    """room.active: what the experts that were chosen make of what is read by gate and up."""
    from specdec_tui.backends.gpu import experts

    (count, both, columns), tokens = linear.weight.shape, len(own.x)
    tile = tile or experts_tile(columns)
    biased = linear.bias.numel() > 0
    experts.gated_experts[(tokens * kind.chosen, -(-both // (2 * tile.rows)))](
        own.x, own.x if own.stream is None else own.stream, linear.weight, linear.bias if biased else linear.weight,
        room.chosen, room.active, count, kind.chosen, both // 2, columns, in_turn, own.stream is not None,
        rules.epsilon, biased, activation, kind.limit, kind.alpha, tile.pieces, tile.rows, tile.columns, power(columns),
        rules.overlap, num_warps=tile.warps, num_stages=tile.stages, **rules.launch,
    )  # fmt: skip


def add_experts(
    rules: Rules,
    x: Tensor,
    linear: Affine,
    kind: Experts,
    room: Room,
    y: Tensor,
    follow: Follow | None,
    tile: Tile | None = None,
) -> None:
    """y [tokens, hidden] += what the experts that were chosen make of x [tokens · slots, inner], by their shares.

    A matrix [hidden, inner] stands for the shared expert, with x [tokens, inner]. `gated_experts` must be the kernel
    before: what a router chose is read before that one ends.
    """
    from specdec_tui.backends.gpu import experts

    shared = linear.weight.dim() == 2
    (rows, columns), count = linear.weight.shape[-2:], 1 if shared else len(linear.weight)
    slots, first = (1, kind.chosen) if shared else (kind.chosen, 0)
    tile = tile or experts_down_tile(slots, columns)
    biased = linear.bias.numel() > 0
    experts.add_experts[(len(y), -(-rows // tile.rows))](
        x, linear.weight, linear.bias if biased else linear.weight, room.chosen, room.shares, y,
        follow.norm if follow else y, follow.x if follow else y, count, slots, kind.chosen + 1, first, rows, columns,
        rules.norm_offset, biased, follow is not None, tile.pieces // power(slots), tile.pieces, tile.rows,
        tile.columns, tile.early, tile.ahead, rules.overlap, num_warps=tile.warps, num_stages=tile.stages,
        **rules.launch,
    )  # fmt: skip
