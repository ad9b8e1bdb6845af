"""The families of models that are described: what the config of a model does not say, a row for each class.

Read off transformers 5.17 and 5.24, whose names are used throughout. `decoder.describe` reads the rest from a config
and its modules.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

_NAMES = ("input_layernorm", "", "post_attention_layernorm", "")
_FOUR = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")
_ONE = ("input_layernorm", "", "", "")
_BEHIND = ("", "post_attention_layernorm", "", "post_feedforward_layernorm")
_QKV, _OUTPUT = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), ("self_attn.o_proj",)
_APART = (_QKV, _OUTPUT, ("mlp.gate_proj", "mlp.up_proj"), ("mlp.down_proj",))
_JOINED = (("self_attn.qkv_proj",), _OUTPUT, ("mlp.gate_up_proj",), ("mlp.down_proj",))

_HALF_JOINED = (_QKV, *_JOINED[1:])


@dataclass(frozen=True, slots=True)
class ExpertNames:
    """A mixture of experts in a layer, whose MLP it is: see `decoder.Experts`.

    `router`: a linear layer with a row for each expert. `experts`: a module with `gate_up_proj` [experts, 2 · inner,
    hidden], gate first, and `down_proj` [experts, hidden, inner]; `transposed`: both with their last two axes swapped,
    rows of gate and up in turn, and with biases `gate_up_proj_bias` and `down_proj_bias`. `shared`: gate, up and down
    of an MLP that each token goes through, times the sigmoid of its product with the one row of `shared_gate`; empty
    where there is none.
    """

    router: str = "mlp.gate"
    experts: str = "mlp.experts"
    scoring: str = "softmax"
    normed: bool = True
    transposed: bool = False
    shared: tuple[str, ...] = ()
    shared_gate: str = ""


@dataclass(frozen=True, slots=True)
class Family:
    """A family of decoders. Names of modules within a layer, those of `layers`, `embedding`, … within the model.

    `norms`: those before attention, behind it, before the MLP, behind it ("" for none). `norm`: "rms", or "layer",
    which takes the mean away; a norm may have no weight (which is 1) and a bias. `norm_offset` is added to all of
    their weights. `head_norms`: queries and keys are normed by `self_attn.q_norm` and `self_attn.k_norm`, "head" by
    head, or the "whole" of them in one. `parallel`: attention and MLP read the same stream, and both are added to it;
    the MLP reads what attention reads where it has no norm of its own.

    `groups`: the linear layers (queries, keys and values; output; gate and up; down), of which those of a group read
    the same input and are joined by rows. `gated`: down reads activation(gate) · up, otherwise activation(up).
    `transposed`: their weights are [columns, rows]. `grouped`: the queries of a key head, its key and its value lie
    together; otherwise all queries lie before all keys, and these before all values.

    `pairs`: what is rotated together is 2i and 2i + 1, otherwise i and i + turned / 2. `rotates`: "windowed" layers
    alone, or "all". `positions`: a table whose row p + `position_offset` is added to the embedding at position p.
    `sinks`: names a number for each head that takes part in the softmax of its scores without a value. `score_cap`,
    `logit_cap`: the caps that a config names are used. `beside`: modules that a text does not pass through.
    """

    norms: tuple[str, str, str, str] = _NAMES
    norm: str = "rms"
    norm_offset: float = 0.0
    head_norms: str = ""
    parallel: bool = False
    groups: tuple[tuple[str, ...], ...] = _APART
    gated: bool = True
    transposed: bool = False
    grouped: bool = False
    pairs: bool = False
    rotates: str = "all"
    positions: str = ""
    position_offset: int = 0
    sinks: str = ""
    activation: str = "hidden_act"
    """The field of a config that names it."""
    epsilon: float = 0.0
    """Of all norms; 0: what they say."""
    score_cap: bool = False
    logit_cap: bool = False
    experts: ExpertNames | None = None
    layers: str = "model.layers"
    embedding: str = "model.embed_tokens"
    last_norm: str = "model.norm"
    head: str = "lm_head"
    beside: tuple[str, ...] = ()


_GEMMA3 = Family(norms=_FOUR, norm_offset=1.0, head_norms="head", activation="hidden_activation")
_SHARED = tuple(f"mlp.shared_expert.{name}_proj" for name in ("gate", "up", "down"))
_LINEAR_NAMES = ("mlp.dense_h_to_4h",), ("mlp.dense_4h_to_h",)

FAMILIES = {
    "LlamaForCausalLM": Family(),
    "MistralForCausalLM": Family(),
    "MinistralForCausalLM": Family(),
    "SeedOssForCausalLM": Family(),
    "ArceeForCausalLM": Family(groups=(_QKV, _OUTPUT, ("mlp.up_proj",), ("mlp.down_proj",)), gated=False),
    "Ernie4_5ForCausalLM": Family(pairs=True),
    "HeliumForCausalLM": Family(pairs=True),
    "GlmForCausalLM": Family(groups=_HALF_JOINED, pairs=True),
    "Glm4ForCausalLM": Family(
        norms=("input_layernorm", "post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"),
        groups=_HALF_JOINED,
        pairs=True,
    ),
    "Qwen2ForCausalLM": Family(),
    "Qwen3ForCausalLM": Family(head_norms="head"),
    "GemmaForCausalLM": Family(norm_offset=1.0),
    "Gemma2ForCausalLM": Family(
        norms=_FOUR, norm_offset=1.0, activation="hidden_activation", score_cap=True, logit_cap=True
    ),
    "VaultGemmaForCausalLM": Family(
        norms=("input_layernorm", "", "pre_feedforward_layernorm", ""),
        norm_offset=1.0,
        activation="hidden_activation",
        score_cap=True,
        logit_cap=True,
    ),
    "Gemma3ForCausalLM": replace(_GEMMA3, logit_cap=True),
    "Gemma3ForConditionalGeneration": replace(
        _GEMMA3,
        layers="model.language_model.layers",
        embedding="model.language_model.embed_tokens",
        last_norm="model.language_model.norm",
        beside=("model.vision_tower", "model.multi_modal_projector"),
    ),
    "PhiForCausalLM": Family(
        norms=_ONE,
        norm="layer",
        parallel=True,
        groups=(_QKV, ("self_attn.dense",), ("mlp.fc1",), ("mlp.fc2",)),
        gated=False,
        last_norm="model.final_layernorm",
    ),
    "Phi3ForCausalLM": Family(groups=_JOINED),
    "OlmoForCausalLM": Family(norm="layer", epsilon=1e-5),
    "Olmo2ForCausalLM": Family(norms=_BEHIND, head_norms="whole"),
    "Olmo3ForCausalLM": Family(norms=_BEHIND, head_norms="whole"),
    "Exaone4ForCausalLM": Family(norms=_BEHIND, head_norms="head"),
    "GraniteForCausalLM": Family(),
    "SmolLM3ForCausalLM": Family(),
    "OPTForCausalLM": Family(
        norms=("self_attn_layer_norm", "", "final_layer_norm", ""),
        norm="layer",
        groups=(_QKV, ("self_attn.out_proj",), ("fc1",), ("fc2",)),
        gated=False,
        positions="model.decoder.embed_positions",
        position_offset=2,
        activation="activation_function",
        layers="model.decoder.layers",
        embedding="model.decoder.embed_tokens",
        last_norm="model.decoder.final_layer_norm",
    ),
    "GPT2LMHeadModel": Family(
        norms=("ln_1", "", "ln_2", ""),
        norm="layer",
        groups=(("attn.c_attn",), ("attn.c_proj",), ("mlp.c_fc",), ("mlp.c_proj",)),
        gated=False,
        transposed=True,
        positions="transformer.wpe",
        activation="activation_function",
        layers="transformer.h",
        embedding="transformer.wte",
        last_norm="transformer.ln_f",
    ),
    "GPTNeoXForCausalLM": Family(
        norm="layer",
        groups=(("attention.query_key_value",), ("attention.dense",), *_LINEAR_NAMES),
        gated=False,
        grouped=True,
        layers="gpt_neox.layers",
        embedding="gpt_neox.embed_in",
        last_norm="gpt_neox.final_layer_norm",
    ),
    "CohereForCausalLM": Family(norms=_ONE, norm="layer", parallel=True, pairs=True),
    "Cohere2ForCausalLM": Family(norms=_ONE, norm="layer", parallel=True, pairs=True, rotates="windowed"),
    "Starcoder2ForCausalLM": Family(norm="layer", groups=(_QKV, _OUTPUT, ("mlp.c_fc",), ("mlp.c_proj",)), gated=False),
    "FalconForCausalLM": Family(
        norm="layer",
        groups=(("self_attention.query_key_value",), ("self_attention.dense",), *_LINEAR_NAMES),
        gated=False,
        grouped=True,
        activation="activation",
        layers="transformer.h",
        embedding="transformer.word_embeddings",
        last_norm="transformer.ln_f",
    ),
    "StableLmForCausalLM": Family(norm="layer"),
    "MixtralForCausalLM": Family(experts=ExpertNames()),
    "Qwen2MoeForCausalLM": Family(experts=ExpertNames(shared=_SHARED, shared_gate="mlp.shared_expert_gate")),
    "Qwen3MoeForCausalLM": Family(head_norms="head", experts=ExpertNames()),
    "OlmoeForCausalLM": Family(head_norms="whole", experts=ExpertNames()),
    "GptOssForCausalLM": Family(
        sinks="self_attn.sinks", experts=ExpertNames(router="mlp.router", scoring="chosen", transposed=True)
    ),
}


def family_of(name: str, config: PreTrainedConfig) -> Family:
    """The row of a class, as its config varies it."""
    family = FAMILIES[name]
    if name == "GPTNeoXForCausalLM":
        return replace(family, parallel=bool(config.use_parallel_residual))
    if name == "StableLmForCausalLM" and config.use_parallel_residual:
        return replace(family, parallel=True, norms=_ONE)
    if name == "Exaone4ForCausalLM" and config.sliding_window:
        return replace(family, rotates="windowed")
    if name == "FalconForCausalLM" and config.parallel_attn:
        two = config.new_decoder_architecture and config.num_ln_in_parallel_attn == 2
        return replace(family, parallel=True, norms=("ln_attn", "", "ln_mlp", "") if two else _ONE)
    return family


def family_from(written: dict[str, Any]) -> Family:
    """A family again from its fields, among which tuples may have become lists."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list | tuple) else value

    fields = {name: tuples(value) for name, value in written.items()}
    if fields.get("experts"):
        fields["experts"] = ExpertNames(**{name: tuples(value) for name, value in fields["experts"].items()})
    return Family(**fields)
