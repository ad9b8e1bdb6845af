"""What a decoder layer of a loaded model is: one description, by which passes of our own are parametrised.

A family of models is a row of `families.FAMILIES`; whatever a config says beyond that is read into a `Decoder`.
`describe` says why where a model is something else: what a config or a model holds is described or refused, never
left out. Weights are named as transformers names them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from specdec_tui.backends.described_fields import OtherError, fields_of
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.families import FAMILIES, Family, family_of

if TYPE_CHECKING:
    from torch import nn
    from transformers import PreTrainedConfig, PreTrainedModel

__all__ = ["FAMILIES", "Decoder", "Experts", "Family", "Layer", "Rotation", "describe", "linear_names"]

HEAD_NORMS = ("self_attn.q_norm", "self_attn.k_norm")
# Rotations that do not depend on the length of the text.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_ACTIVATIONS = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
}
_KINDS = {"full_attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in the place of a layer's MLP; its weights are named by `Family.experts`.

    Of `count` experts, each `inner` wide, those `chosen` for a token have the highest products with the router, and
    their outputs are added up. Weights of the sum: by `scoring` "softmax" over all experts, of those chosen divided by
    their sum where `normed`; "chosen": the softmax over those chosen alone. All are times `scale`. `shared_inner`: the
    width of the shared expert, 0 for none. `limit` above 0: gate is cut to at most that, up to between ± that, and
    down reads gate · sigmoid(`alpha` · gate) · (up + 1).
    """

    count: int
    chosen: int
    inner: int
    scoring: str
    normed: bool
    scale: float = 1.0
    shared_inner: int = 0
    limit: float = 0.0
    alpha: float = 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """`window`: positions that attention reaches, its own among them (0: all); `rotation`: its place in `rotations`,
    or −1 where nothing is rotated."""

    window: int
    rotation: int
    experts: Experts | None = None


@dataclass(frozen=True, slots=True)
class Rotation:
    """Angles of position p are p · frequencies, float32 [turned / 2]; cosines and sines are times `scale`."""

    frequencies: Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes and constants; the first `turned` numbers of a head are rotated. A cap c makes c · tanh(x / c) of x; 0 is
    none. `activation`: "silu", "gelu", "gelu_tanh", "relu", or "relu2", which is its square.

    Of the joint rows of queries, keys and values, query j of key head g begins at row g · query_group + j · width, key
    head g at key_first + g · key_group, its value at value_first + g · key_group. `inner`: the width of an MLP without
    experts. `biases`: those linear layers that have one, `Family.head` among them. Embeddings (without what `positions`
    adds), what attention and MLP add to the stream, scores and logits are multiplied by their scales; logits are
    capped afterwards.
    """

    family: Family
    layers: tuple[Layer, ...]
    rotations: tuple[Rotation, ...]
    hidden: int
    inner: int
    heads: int
    key_heads: int
    width: int
    vocabulary: int
    turned: int
    activation: str
    epsilon: float
    score_scale: float
    score_cap: float
    logit_cap: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    query_group: int
    key_first: int
    key_group: int
    value_first: int
    biases: tuple[str, ...]


def describe(model: PreTrainedModel) -> Decoder | str:
    """The description of a model, whose weights need not be there, or why it has none."""
    try:
        return _described(model)
    except OtherError as reason:
        return str(reason)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Over a value that no row foresees, such as a scale of −4 ** −0.5; its own layers may run with it all the same.
        return f"its config or modules hold what is not expected ({type(error).__name__}: {first_line(error)})"


def _described(model: PreTrainedModel) -> Decoder:
    if (name := type(model).__name__) not in FAMILIES:
        raise OtherError(f"{name} is no family described here")
    config = model.config.get_text_config(decoder=True)
    family = family_of(name, config)
    fields = fields_of(config)
    if (activation := getattr(config, family.activation)) not in _ACTIVATIONS:
        raise OtherError(f"its activation is {activation}")
    modules = list(_module(model, family.layers).children())
    _refuse_other_weights(model, family, len(modules))
    kinds = list(fields.get("layer_types") or ["full_attention"] * len(modules))
    if not set(kinds) <= _KINDS:
        raise OtherError(f"it has layers of other kinds ({', '.join(sorted(set(kinds)))})")
    rotations, places = _rotations(model, family, config, kinds)
    experts = [_experts(layer, family, fields) for layer in modules]
    heads, key_heads, width = _heads(config, fields, family)
    turned = 2 * rotations[0].frequencies.numel() if rotations else 0
    if turned > width or any(2 * each.frequencies.numel() != turned for each in rotations):
        raise OtherError(f"its heads are {width} wide, of which {turned} numbers are rotated")
    per_key = (heads // key_heads) * width
    stride = per_key + 2 * width
    apart = (per_key, heads * width, width, (heads + key_heads) * width)
    group, key_first, key_group, value_first = (stride, per_key, stride, per_key + width) if family.grouped else apart
    attention = _module(modules[0], family.groups[1][0].rpartition(".")[0])
    caps = [fields.get("attn_logit_softcapping"), fields.get("final_logit_softcapping")]
    if 0 in [cap for cap, used in zip(caps, (family.score_cap, family.logit_cap), strict=True) if used]:
        raise OtherError("its config caps numbers at 0")
    if caps[1] and not family.logit_cap:
        raise OtherError("its config caps logits, which its class does not")
    return Decoder(
        family=family,
        layers=tuple(
            Layer(_window(fields, kind), _rotation(fields, family, index, places.get(kind, -1), kind), mixture)
            for index, (kind, mixture) in enumerate(zip(kinds, experts, strict=True))
        ),
        rotations=tuple(rotations),
        hidden=config.hidden_size,
        inner=_inner(modules, family, experts, heads * width, key_heads * width, config.hidden_size),
        heads=heads,
        key_heads=key_heads,
        width=width,
        vocabulary=config.vocab_size,
        turned=turned,
        activation=_ACTIVATIONS[activation],
        epsilon=family.epsilon or _epsilon(model, modules, family),
        score_scale=float(getattr(attention, "scaling", width**-0.5)),
        score_cap=float(caps[0] or 0) if family.score_cap else 0.0,
        logit_cap=float(caps[1] or 0),
        embedding_scale=_embedding_scale(model) * float(fields.get("embedding_multiplier", 1.0)),
        residual_scale=float(fields.get("residual_multiplier", 1.0)),
        logit_scale=float(fields.get("logit_scale", 1.0) / fields.get("logits_scaling", 1.0)),
        query_group=group,
        key_first=key_first,
        key_group=key_group,
        value_first=value_first,
        biases=_biases(model, modules, family, experts),
    )


def _embedding_scale(model: PreTrainedModel) -> float:
    """Gemma's, which transformers rounds to the dtype of the weights."""
    embedding: Any = model.get_input_embeddings()
    scale = torch.tensor(float(getattr(embedding, "scalar_embed_scale", 1.0)), dtype=torch.float64)
    return float(scale.to(embedding.weight.dtype))


def _module(root: nn.Module, name: str) -> nn.Module:
    try:
        return root.get_submodule(name)
    except AttributeError:
        raise OtherError(f"it has no {name}") from None


def _dense(family: Family, experts: Experts | None) -> tuple[str, ...]:
    """The linear layers of a layer, but for those of its experts."""
    attention, mlp = family.groups[:2], family.groups[2:]
    return tuple(name for group in (attention if experts else attention + mlp) for name in group)


def _refuse_other_weights(model: PreTrainedModel, family: Family, layers: int) -> None:
    """For what has weights that no part of the description names."""
    within = [name for group in family.groups for name in group] + [name for name in family.norms if name]
    if family.head_norms:
        within += HEAD_NORMS
    if (names := family.experts) is not None:
        within += [names.router, names.experts, *names.shared, *filter(None, (names.shared_gate,))]
    named = {family.embedding, family.last_norm, family.head, family.positions}
    named |= {f"{family.layers}.{index}.{name}" for index in range(layers) for name in within}
    alone = {f"{family.layers}.{index}.{family.sinks}" for index in range(layers)} if family.sinks else set()
    for name, _ in model.named_parameters():
        module = name.rpartition(".")[0]
        if module not in named and name not in alone and not name.startswith(family.beside or ("\0",)):
            raise OtherError(f"it has weights that are not described here ({name})")


def _rotations(
    model: PreTrainedModel, family: Family, config: PreTrainedConfig, kinds: Sequence[str]
) -> tuple[list[Rotation], dict[str, int]]:
    """All rotations, and which of them layers of a kind use."""
    rotations: list[Rotation] = []
    places: dict[str, int] = {}
    if family.positions:
        return rotations, places
    own = _module(model, f"{family.layers.rpartition('.')[0]}.rotary_emb")
    rotary: Any = type(own)(config=config)  # the model's own may hold no numbers
    for kind in dict.fromkeys(kinds):
        apart = isinstance(rotary.rope_type, dict)
        if (rope := rotary.rope_type[kind] if apart else rotary.rope_type) not in _ROPE_TYPES:
            raise OtherError(f"its rotations depend on the length of the text ({rope})")
        prefix = f"{kind}_" if apart else ""
        if apart or not rotations:
            scale = getattr(rotary, f"{prefix}attention_scaling", 1.0)
            rotations.append(Rotation(getattr(rotary, f"{prefix}inv_freq").detach().float().cpu(), float(scale)))
        places[kind] = len(rotations) - 1
    return rotations, places


def _rotation(fields: dict[str, Any], family: Family, index: int, place: int, kind: str) -> int:
    turns = (fields.get("no_rope_layers") or [1] * (index + 1))[index]
    still = family.rotates == "windowed" and not _window(fields, kind)
    return place if turns and not still else -1


def _window(fields: dict[str, Any], kind: str) -> int:
    sliding = kind == "sliding_attention" if "layer_types" in fields else True
    return int(fields.get("sliding_window") or 0) if sliding else 0


def _heads(config: PreTrainedConfig, fields: dict[str, Any], family: Family) -> tuple[int, int, int]:
    """Heads of queries, heads of keys, their width."""
    heads = int(config.num_attention_heads)
    keys = fields.get("num_key_value_heads") or heads
    if "num_kv_heads" in fields:
        keys = fields["num_kv_heads"] if fields["new_decoder_architecture"] or not fields["multi_query"] else 1
    wide = not family.grouped and not family.transposed and getattr(config, "head_dim", None)
    return heads, int(keys), int(wide or config.hidden_size // heads)


def _shape(module: Any) -> tuple[int, int]:
    """Rows and columns of a linear layer, which may hold its weights packed."""
    if hasattr(module, "nf"):  # transformers' Conv1D
        return int(module.nf), int(module.nx)
    if hasattr(module, "out_features"):
        return int(module.out_features), int(module.in_features)
    raise OtherError(f"its linear layers are of another kind ({type(module).__name__})")


def _inner(
    modules: Sequence[nn.Module],
    family: Family,
    experts: Sequence[Experts | None],
    queries: int,
    keys: int,
    hidden: int,
) -> int:
    """The width of the MLPs without experts, 0 where there are none; refuses shapes that are not those described."""
    found = set()
    for layer, mixture in zip(modules, experts, strict=True):
        groups = [[_shape(_module(layer, name)) for name in names] for names in family.groups[: 2 if mixture else 4]]
        rows = [sum(rows for rows, _ in group) for group in groups]
        inner = 0 if mixture else groups[3][0][1]
        expected = [queries + 2 * keys, hidden, (1 + family.gated) * inner, hidden]
        columns = [hidden, queries, hidden, inner]
        if rows != expected[: len(rows)] or any(
            shape[1] != width for group, width in zip(groups, columns, strict=False) for shape in group
        ):
            raise OtherError("its weights have other shapes than its config says")
        found |= {inner} - {0}
    if len(found) > 1:
        raise OtherError("its layers are of different widths")
    return found.pop() if found else 0


def _epsilon(model: PreTrainedModel, modules: Sequence[nn.Module], family: Family) -> float:
    names = [name for name in family.norms if name] + list(HEAD_NORMS if family.head_norms else ())
    norms = [_module(layer, name) for layer in modules for name in names] + [_module(model, family.last_norm)]
    said: list[Any] = [getattr(norm, "variance_epsilon", getattr(norm, "eps", None)) for norm in norms]
    if None in said:
        raise OtherError("its norms do not say what they add to the variance")
    if len(found := set(map(float, said))) > 1:
        raise OtherError("its norms add different numbers to the variance")
    return found.pop()


def _biases(
    model: PreTrainedModel, modules: Sequence[nn.Module], family: Family, experts: Sequence[Experts | None]
) -> tuple[str, ...]:
    def biased(root: nn.Module, names: Sequence[str]) -> set[str]:
        return {name for name in names if getattr(_module(root, name), "bias", None) is not None}

    found = [biased(layer, _dense(family, mixture)) for layer, mixture in zip(modules, experts, strict=True)]
    several = set.union(*found)
    for has, layer, mixture in zip(found, modules, experts, strict=True):
        if has != several & set(_dense(family, mixture)):
            raise OtherError("its layers have different biases")
        if mixture and family.experts and biased(layer, family.experts.shared):
            raise OtherError("its shared experts have biases")
    return (*sorted(several), *biased(model, [family.head]))


def _experts(layer: nn.Module, family: Family, fields: dict[str, Any]) -> Experts | None:
    """None for a layer whose MLP is a plain one."""
    names = family.experts
    if names is None or not hasattr(layer.get_submodule(names.router.rpartition(".")[0]), "experts"):
        return None
    shared = _shape(_module(layer, names.shared[0]))[0] if names.shared else 0
    return Experts(
        count=int(fields.get("num_local_experts") or fields["num_experts"]),
        chosen=int(fields["num_experts_per_tok"]),
        inner=int(fields.get("moe_intermediate_size") or fields["intermediate_size"]),
        scoring=names.scoring,
        normed=bool(fields.get("norm_topk_prob", names.normed)),
        shared_inner=shared,
        limit=float(fields.get("swiglu_limit", 7.0)) if names.transposed else 0.0,
        alpha=float(fields.get("swiglu_alpha", 1.702)) if names.transposed else 0.0,
    )


def linear_names(family: Family) -> tuple[str, ...]:
    """The seven products of a layer: queries, keys, values, output, gate, up, down; a joined one stands for several."""
    qkv, output, gate_up, down = family.groups
    several: Any = lambda names, count: names if len(names) == count else names * count  # noqa: E731
    return (*several(qkv, 3), *output, *several(gate_up, 2), *down)
