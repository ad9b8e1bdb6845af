"""The drafter while it is trained: float32 master weights in the fused layout of `llama`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from distil.llama import Layer, Llama, Shape, rotations, trunk

_EMBEDDING_DEVIATION = 0.04
_MATRIX_DEVIATION = 0.02


def student_shape(target: Shape, width: int, layers: int, heads: int, kv_heads: int, mlp: int) -> Shape:
    """A shape with the target's vocabulary, rotary base and norm; its embedding is tied."""
    sizes = {"width": width, "layers": layers, "heads": heads, "kv_heads": kv_heads, "head_dim": width // heads}
    return target._replace(**sizes, mlp=mlp, tied=True)


def principal_embedding(embedding: Tensor, width: int, source: torch.Generator) -> Tensor:
    """[vocab, width] float32: the target's embedding [vocab, target width] on its strongest directions.

    Centred, since what all tokens share says nothing; scaled as a fresh embedding would be. Where the
    student is wider than the target the rest is noise.
    """
    rows = embedding.double() - embedding.double().mean(0)
    directions = torch.linalg.eigh(rows.t() @ rows).eigenvectors.flip(1)[:, :width]
    # An eigenvector has no sign of its own; fix it, so that every machine starts from the same numbers.
    directions = directions * directions.gather(0, directions.abs().argmax(0, keepdim=True)).sign()
    projected = (rows @ directions).float()
    projected = projected * (_EMBEDDING_DEVIATION / projected.std())
    missing = width - projected.shape[1]
    rest = torch.randn(len(projected), missing, generator=source) * (_EMBEDDING_DEVIATION / 4)
    return torch.cat([projected, rest], 1)


class _StudentLayer(nn.Module):
    def __init__(self, shape: Shape, source: torch.Generator) -> None:
        super().__init__()

        def matrix(rows: int, columns: int, scale: float = 1.0) -> nn.Parameter:
            return nn.Parameter(torch.randn(rows, columns, generator=source) * (_MATRIX_DEVIATION * scale))

        inner = shape.heads * shape.head_dim
        # Two branches per layer are added to the stream: smaller, so that depth does not enlarge it (GPT-2).
        branch = (2 * shape.layers) ** -0.5
        self.norm_in = nn.Parameter(torch.ones(shape.width))
        self.qkv = matrix(inner + 2 * shape.kv_heads * shape.head_dim, shape.width)
        self.out = matrix(shape.width, inner, branch)
        self.norm_mid = nn.Parameter(torch.ones(shape.width))
        self.gate_up = matrix(2 * shape.mlp, shape.width)
        self.down = matrix(shape.width, shape.mlp, branch)

    def weights(self, dtype: torch.dtype) -> Layer:
        return Layer(*(w.to(dtype) for w in (self.norm_in, self.qkv, self.out, self.norm_mid, self.gate_up, self.down)))


class Trunk(nn.Module):
    """Everything between the embedding and the output projection; computes in the dtype of its input."""

    def __init__(self, shape: Shape, length: int, source: torch.Generator) -> None:
        super().__init__()
        self.shape = shape
        self.layers = nn.ModuleList(_StudentLayer(shape, source) for _ in range(shape.layers))
        self.norm = nn.Parameter(torch.ones(shape.width))
        cosines, sines = rotations(shape, length, torch.device("cpu"))
        self.register_buffer("cosines", cosines, persistent=False)
        self.register_buffer("sines", sines, persistent=False)

    def weights(self, dtype: torch.dtype) -> tuple[tuple[Layer, ...], Tensor]:
        """Layers and last norm in `dtype`, still attached to the master weights."""
        return tuple(layer.weights(dtype) for layer in self.layers), self.norm.to(dtype)  # type: ignore[operator]

    def forward(self, x: Tensor) -> Tensor:
        layers, norm = self.weights(x.dtype)
        return trunk(x, layers, norm, self.shape, self.cosines, self.sines)  # type: ignore[arg-type]


class Student(nn.Module):
    """A Llama with tied embeddings, initialised from the target's embedding and a seed."""

    def __init__(self, shape: Shape, length: int, seed: int, target_embedding: Tensor | None = None) -> None:
        super().__init__()
        source = torch.Generator().manual_seed(seed)
        if target_embedding is None:  # weights are loaded afterwards
            start = torch.zeros(shape.vocab, shape.width)
        else:
            start = principal_embedding(target_embedding.cpu(), shape.width, source)
        self.shape = shape
        self.embedding = nn.Parameter(start)
        self.trunk = Trunk(shape, length, source)

    def as_llama(self) -> Llama:
        """The current weights, shared, in float32."""
        layers, norm = self.trunk.weights(torch.float32)
        return Llama(self.shape, self.embedding, layers, norm, self.embedding)

    def decayed(self) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
        """The parameters with weight decay (matrices of the trunk) and those without (embedding, norms)."""
        matrices = [p for p in self.trunk.parameters() if p.ndim == 2]
        others = [p for p in self.trunk.parameters() if p.ndim != 2]
        return matrices, [self.embedding, *others]


def hugging_face_state(student: Student) -> dict[str, Tensor]:
    """The weights under the names that transformers gives them, detached, on the CPU."""
    shape = student.shape
    state: dict[str, Any] = {"model.embed_tokens.weight": student.embedding, "model.norm.weight": student.trunk.norm}
    for n, layer in enumerate(student.as_llama().layers):
        name = f"model.layers.{n}"
        inner, keys = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        q, k, v = layer.qkv.split([inner, keys, keys])
        gate, up = layer.gate_up.chunk(2)
        state |= {
            f"{name}.input_layernorm.weight": layer.norm_in,
            f"{name}.self_attn.q_proj.weight": q,
            f"{name}.self_attn.k_proj.weight": k,
            f"{name}.self_attn.v_proj.weight": v,
            f"{name}.self_attn.o_proj.weight": layer.out,
            f"{name}.post_attention_layernorm.weight": layer.norm_mid,
            f"{name}.mlp.gate_proj.weight": gate,
            f"{name}.mlp.up_proj.weight": up,
            f"{name}.mlp.down_proj.weight": layer.down,
        }
    return {name: value.detach().cpu().clone() for name, value in state.items()}
