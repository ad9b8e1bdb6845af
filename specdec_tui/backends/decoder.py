"""What a decoder layer of a loaded model is: one description, by which passes of our own are parametrised.

A family of models is a row of `FAMILIES`; whatever its config says beyond that is read into a `Decoder`. `describe`
says why where a model is something else. Weights are named as transformers names them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedModel

_NAMES = ("input_layernorm", "", "post_attention_layernorm", "")
_FOUR = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_APART = (
    ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    ("self_attn.o_proj",),
    ("mlp.gate_proj", "mlp.up_proj"),
    ("mlp.down_proj",),
)
_JOINED = (("self_attn.qkv_proj",), ("self_attn.o_proj",), ("mlp.gate_up_proj",), ("mlp.down_proj",))
# Rotations that do not depend on the length of the text.
_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
_ACTIVATIONS = {"silu": "silu", "gelu_pytorch_tanh": "gelu_tanh"}
_BIASED = ("q_proj", "k_proj", "v_proj")


@dataclass(frozen=True, slots=True)
class Family:
    """What the config of a model does not say.

    `norms`: names of those before attention, behind it, before the MLP, behind it ("" for none); `head_norms`: each
    head of queries and keys is normed; `norm_offset` is added to the weights of all norms; `groups`: the linear
    layers, of which those of a group read the same input and are joined by rows.
    """

    norms: tuple[str, str, str, str] = _NAMES
    head_norms: bool = False
    norm_offset: float = 0.0
    groups: tuple[tuple[str, ...], ...] = _APART


FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "Qwen2ForCausalLM": Family(),
    "Qwen3ForCausalLM": Family(head_norms=True),
    "Gemma2ForCausalLM": Family(norms=_FOUR, norm_offset=1.0),
    "Gemma3ForCausalLM": Family(norms=_FOUR, norm_offset=1.0, head_norms=True),
    "Phi3ForCausalLM": Family(groups=_JOINED),
}


@dataclass(frozen=True, slots=True)
class Layer:
    """`window`: positions that attention reaches, its own among them (0: all); `rotation`: its place in `rotations`."""

    window: int
    rotation: int


@dataclass(frozen=True, slots=True)
class Rotation:
    """Angles of position p are p · frequencies, float32 [turned / 2]; cosines and sines are times `scale`."""

    frequencies: Tensor
    scale: float


@dataclass(frozen=True, slots=True)
class Decoder:
    """Sizes and constants; `turned` numbers of a head are rotated. A cap c makes c · tanh(x / c) of x; 0 is none."""

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


def describe(model: PreTrainedModel) -> Decoder | str:
    """The description of a model, whose weights need not be there, or why it has none."""
    config = model.config
    family = FAMILIES.get(type(model).__name__)
    if family is None:
        return f"{type(model).__name__} is no family described here"
    activation = getattr(config, "hidden_activation", None) or getattr(config, "hidden_act", None)
    if activation not in _ACTIVATIONS:
        return f"its activation is {activation}"
    biases = [name for name, _ in model.named_parameters() if name.endswith("bias")]
    if any(name.split(".")[-2] not in _BIASED for name in biases):
        return "it has biases beyond those of queries, keys and values"
    if getattr(config, "use_bidirectional_attention", False):
        return "its attention looks ahead"
    rotary = type(model.model.rotary_emb)(config=config)  # the model's own may hold no numbers
    kinds = list(getattr(config, "layer_types", None) or ["full_attention"] * config.num_hidden_layers)
    if not set(kinds) <= {"full_attention", "sliding_attention"}:
        return f"it has layers of other kinds ({', '.join(sorted(set(kinds)))})"
    rotations: list[Rotation] = []
    places: dict[str, int] = {}
    for kind in dict.fromkeys(kinds):
        apart = isinstance(rotary.rope_type, dict)
        if (rope := rotary.rope_type[kind] if apart else rotary.rope_type) not in _ROPE_TYPES:
            return f"its rotations depend on the length of the text ({rope})"
        prefix = f"{kind}_" if apart else ""
        if apart or not rotations:
            scale = getattr(rotary, f"{prefix}attention_scaling", 1.0)
            rotations.append(Rotation(getattr(rotary, f"{prefix}inv_freq").detach().float().cpu(), float(scale)))
        places[kind] = len(rotations) - 1
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    turned = 2 * rotations[0].frequencies.numel()
    if turned > width:
        return f"its heads are {width} wide, of which {turned} numbers are rotated"
    return Decoder(
        family=family,
        layers=tuple(Layer(_window(config, kind), places[kind]) for kind in kinds),
        rotations=tuple(rotations),
        hidden=config.hidden_size,
        inner=config.intermediate_size,
        heads=config.num_attention_heads,
        key_heads=config.num_key_value_heads,
        width=int(width),
        vocabulary=config.vocab_size,
        turned=turned,
        activation=_ACTIVATIONS[activation],
        epsilon=float(config.rms_norm_eps),
        score_scale=float(getattr(model.model.layers[0].self_attn, "scaling", width**-0.5)),
        score_cap=float(getattr(config, "attn_logit_softcapping", None) or 0.0),
        logit_cap=float(getattr(config, "final_logit_softcapping", None) or 0.0),
        embedding_scale=float(getattr(model.get_input_embeddings(), "scalar_embed_scale", 1.0)),
    )


def _window(config: PreTrainedConfig, kind: str) -> int:
    has_kinds = bool(getattr(config, "layer_types", None))
    sliding = kind == "sliding_attention" if has_kinds else True
    return int(getattr(config, "sliding_window", None) or 0) if sliding else 0


def linear_names(family: Family) -> tuple[str, ...]:
    """The seven products of a layer: queries, keys, values, output, gate, up, down; a joined one stands for several."""
    qkv, output, gate_up, down = family.groups
    several: Any = lambda names, count: names if len(names) == count else names * count  # noqa: E731
    return (*several(qkv, 3), *output, *several(gate_up, 2), *down)
