"""A plain float32 pass over a whole text, written from a model's description and nothing else but its weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from specdec_tui.backends.decoder import HEAD_NORMS, Decoder, Experts, Layer

ACTIVATIONS = {
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x) ** 2,
}


def capped(x: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(x / cap) if cap else x


class PlainPass:
    def __init__(self, model: nn.Module, decoder: Decoder) -> None:
        self.model, self.decoder, self.family = model, decoder, decoder.family

    @torch.no_grad()
    def __call__(self, ids: Sequence[int]) -> Tensor:
        """Logits [n, vocabulary] after each token."""
        decoder, family, found = self.decoder, self.family, self.model.get_submodule
        x = found(family.embedding).weight[list(ids)] * decoder.embedding_scale
        if family.positions:
            x = x + found(family.positions).weight[family.position_offset :][: len(ids)]
        layers = list(found(family.layers))
        assert len(layers) == len(decoder.layers)
        for module, layer in zip(layers, decoder.layers, strict=True):
            x = self.layer(module, layer, x)
        x = self.norm(found(family.last_norm), x)
        head = found(family.head)
        assert (head.bias is not None) == (family.head in decoder.biases)
        logits = functional.linear(x, head.weight, head.bias)
        return capped(logits * decoder.logit_scale, decoder.logit_cap)

    def layer(self, module: nn.Module, layer: Layer, x: Tensor) -> Tensor:
        before, behind, before_mlp, behind_mlp = self.family.norms
        read = self.named_norm(module, before, x)
        attended = self.named_norm(module, behind, self.attention(module, layer, read))
        attended = attended * self.decoder.residual_scale
        if self.family.parallel:
            read = self.named_norm(module, before_mlp, x) if before_mlp else read
        else:
            x = x + attended
            read = self.named_norm(module, before_mlp, x)
        made = self.mixture(module, layer.experts, read) if layer.experts else self.mlp(module, read)
        made = self.named_norm(module, behind_mlp, made) * self.decoder.residual_scale
        return x + attended + made if self.family.parallel else x + made

    def named_norm(self, module: nn.Module, name: str, x: Tensor) -> Tensor:
        return self.norm(module.get_submodule(name), x) if name else x

    def norm(self, module: Any, x: Tensor) -> Tensor:
        if self.family.norm == "layer":
            x = x - x.mean(-1, keepdim=True)
        x = x / torch.sqrt(x.pow(2).mean(-1, keepdim=True) + self.decoder.epsilon)
        weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
        x = x if weight is None else x * (weight + self.family.norm_offset)
        return x if bias is None else x + bias

    def joined(self, module: nn.Module, group: int, x: Tensor) -> Tensor:
        rows = []
        for name in self.family.groups[group]:
            linear = module.get_submodule(name)
            assert (linear.bias is not None) == (name in self.decoder.biases)
            weight = linear.weight.T if self.family.transposed else linear.weight
            rows.append(functional.linear(x, weight, linear.bias))
        return torch.cat(rows, -1)

    def attention(self, module: nn.Module, layer: Layer, x: Tensor) -> Tensor:
        d, tokens = self.decoder, len(x)
        rows, group = self.joined(module, 0, x), self.decoder.heads // self.decoder.key_heads

        def heads(begins: list[int]) -> Tensor:
            return torch.stack([rows[:, begin : begin + d.width] for begin in begins], 1)

        queries = heads([g * d.query_group + j * d.width for g in range(d.key_heads) for j in range(group)])
        keys = heads([d.key_first + g * d.key_group for g in range(d.key_heads)])
        values = heads([d.value_first + g * d.key_group for g in range(d.key_heads)])
        if self.family.head_norms:
            whole = self.family.head_norms == "whole"
            norms = [module.get_submodule(name) for name in HEAD_NORMS]
            queries, keys = (
                self.norm(norm, states.flatten(1) if whole else states).view(states.shape)
                for norm, states in zip(norms, (queries, keys), strict=True)
            )
        queries, keys = (self.rotated(states, layer) for states in (queries, keys))
        keys, values = (states.repeat_interleave(group, 1) for states in (keys, values))
        scores = capped(torch.einsum("qhw,khw->hqk", queries, keys) * d.score_scale, d.score_cap)
        back = torch.arange(tokens)[:, None] - torch.arange(tokens)
        seen = (back >= 0) & (back < (layer.window or tokens))
        scores = scores.masked_fill(~seen, -torch.inf)
        if self.family.sinks:
            path, _, name = self.family.sinks.rpartition(".")
            sinks = getattr(module.get_submodule(path), name)[:, None, None].expand(-1, tokens, 1)
            scores = torch.cat([scores, sinks], -1)
        chances = scores.softmax(-1)[..., :tokens]
        return self.joined(module, 1, torch.einsum("hqk,khw->qhw", chances, values).flatten(1))

    def rotated(self, states: Tensor, layer: Layer) -> Tensor:
        """[n, heads, width]."""
        if layer.rotation < 0:
            return states
        rotation, half = self.decoder.rotations[layer.rotation], self.decoder.turned // 2
        angles = torch.arange(len(states))[:, None, None] * rotation.frequencies
        cosines, sines = angles.cos() * rotation.scale, angles.sin() * rotation.scale
        turned = states[..., : 2 * half]
        pairs = turned.unflatten(-1, (half, 2)) if self.family.pairs else turned.unflatten(-1, (2, half)).mT
        a, b = pairs.unbind(-1)
        pairs = torch.stack([a * cosines - b * sines, b * cosines + a * sines], -1)
        turned = pairs.flatten(-2) if self.family.pairs else pairs.mT.flatten(-2)
        return torch.cat([turned, states[..., 2 * half :]], -1)

    def active(self, both: Tensor) -> Tensor:
        act = ACTIVATIONS[self.decoder.activation]
        if not self.family.gated:
            return act(both)
        gate, up = both.chunk(2, -1)
        return act(gate) * up

    def mlp(self, module: nn.Module, x: Tensor) -> Tensor:
        active = self.active(self.joined(module, 2, x))
        assert active.shape[-1] == self.decoder.inner
        return self.joined(module, 3, active)

    def mixture(self, module: nn.Module, kind: Experts, x: Tensor) -> Tensor:
        names, found = self.family.experts, module.get_submodule
        assert names is not None
        router, experts = found(names.router), found(names.experts)
        scores = functional.linear(x, router.weight, getattr(router, "bias", None))
        if kind.scoring == "chosen":
            best, chosen = scores.topk(kind.chosen)
            shares = best.softmax(-1)
        else:
            shares, chosen = scores.softmax(-1).topk(kind.chosen)
            shares = shares / shares.sum(-1, keepdim=True) if kind.normed else shares
        y = torch.zeros_like(x)
        for token, (those, parts) in enumerate(zip(chosen, shares * kind.scale, strict=True)):
            for expert, part in zip(those.tolist(), parts, strict=True):
                y[token] += part * self.expert(experts, kind, expert, x[token])
        if names.shared:
            gate, up, down = (found(name).weight for name in names.shared)
            assert len(gate) == kind.shared_inner
            active = self.active(torch.cat([x @ gate.T, x @ up.T], -1))
            y = y + torch.sigmoid(x @ found(names.shared_gate).weight.T) * (active @ down.T)
        return y

    def expert(self, experts: Any, kind: Experts, number: int, x: Tensor) -> Tensor:
        assert self.family.experts is not None
        gate_up, down = experts.gate_up_proj[number], experts.down_proj[number]
        assert len(experts.down_proj) == kind.count
        if not self.family.experts.transposed:
            assert len(gate_up) == 2 * kind.inner
            return down @ self.active(gate_up @ x)
        both = x @ gate_up + experts.gate_up_proj_bias[number]
        gate, up = both[::2].clamp(max=kind.limit), both[1::2].clamp(-kind.limit, kind.limit)
        active = (up + 1) * gate * torch.sigmoid(kind.alpha * gate)
        return active @ down + experts.down_proj_bias[number]
