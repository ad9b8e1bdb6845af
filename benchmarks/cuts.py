"""Which models' logits depend on how a text was cut into passes? Every causal family of transformers, tiny and random.

    python benchmarks/cuts.py                 # all families, about five minutes
    python benchmarks/cuts.py llama phi3      # some of them

For one text three ways through transformers itself are compared with `generate` (its own cache, the prompt in one pass
and then token by token): the whole text in one pass without a cache, and the passes of this project, a prompt read in
pieces and drafts refused and taken back, with a cache and without. Sizes are chosen so that the text outgrows every
window, chunk and rotation. A family that transformers cannot make or run so small is named with the reason.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM, GenerationConfig

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.model import Expecting

PROMPT, NEW, PIECE = 44, 12, 7
TOLERANCE = 1e-3  # of the largest logit: rounding in float32 is a hundredth of that

SIZES = {
    ("hidden_size", "n_embd", "d_model", "dim", "embed_dim", "embedding_size", "emb_dim"): 32,
    ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "ffn_hidden_size", "encoder_ffn_dim", "decoder_ffn_dim"): 48,
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "decoder_layers", "encoder_layers"): 4,
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "decoder_attention_heads", "encoder_attention_heads"): 4,
    ("num_key_value_heads", "multi_query_kv_heads"): 2,
    ("head_dim", "kv_channels", "v_head_dim", "qk_nope_head_dim", "global_head_dim", "attention_head_dim"): 8,
    ("qk_rope_head_dim",): 8,
    ("rotary_dim",): 4,
    ("qk_head_dim",): 16,
    ("q_lora_rank", "kv_lora_rank"): 8,
    ("vocab_size",): 320,
    ("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_sequence_length"): 128,
    ("sliding_window", "window_size", "attention_window_size"): 6,
    ("attention_chunk_size",): 8,
    ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"): 4,
    ("num_experts_per_tok", "moe_k", "moe_topk"): 2,
    ("n_group", "topk_group"): 1,
    ("moe_intermediate_size", "shared_expert_intermediate_size", "moe_shared_expert_intermediate_size"): 16,
    ("state_size", "mamba_d_state", "conv_kernel", "mamba_d_conv", "linear_conv_kernel_dim", "conv_L_cache"): 4,
    ("mamba_n_heads", "linear_num_key_heads", "linear_num_value_heads", "mamba_num_heads"): 4,
    ("linear_key_head_dim", "linear_value_head_dim", "mamba_d_head", "mamba_head_dim"): 8,
    ("hidden_size_per_layer_input",): 8,
    ("vocab_size_per_layer_input",): 320,
    ("lru_width",): 32,
    ("first_k_dense_replace",): 1,
    ("num_kv_shared_layers",): 0,
    ("pad_token_id", "bos_token_id"): 0,
    ("eos_token_id",): 1,
}

_LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "short_factor": [1.0, 1.0, 1.0, 1.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 48,
}
_DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0}
_YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 32}
_MAMBA2 = {"mamba_n_heads": 8, "mamba_d_head": 8, "mamba_n_groups": 1}
_SHARED = {"num_hidden_layers": 5, "layers_block_type": ["mamba", "mamba", "hybrid", "mamba", "hybrid"]}
_CONVOLUTIONS = {"layer_types": ["conv", "full_attention"] * 2}
# Families with what makes them so small, and families again with what a config of theirs may say besides.
VARIANTS: dict[str, dict[str, Any]] = {
    "bamba": _MAMBA2 | {"attn_layer_indices": [1, 3]},
    "falcon_h1": _MAMBA2 | {"mamba_d_ssm": 64},
    "granitemoehybrid": _MAMBA2 | {"layer_types": ["mamba", "attention"] * 2, "shared_intermediate_size": 16},
    "jamba": {"mamba_dt_rank": 4, "attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": _CONVOLUTIONS,
    "lfm2_moe": _CONVOLUTIONS | {"num_dense_layers": 1},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 2},
    "nemotron_h": {"hybrid_override_pattern": "M*-M", "mamba_num_heads": 8, "mamba_head_dim": 8, "n_groups": 2},
    "xlstm": {"hidden_size": 128, "num_heads": 4, "chunk_size": 16},
    "zamba": _SHARED | {"n_mamba_heads": 2, "mamba_dt_rank": 4, "attention_head_dim": 16, "num_key_value_heads": 4},
    "zamba2": _SHARED
    | {"n_mamba_heads": 8, "mamba_headdim": 8, "mamba_ngroups": 1, "num_mem_blocks": 1, "adapter_rank": 4}
    | {"attention_head_dim": 16, "num_key_value_heads": 4},
    "llama + dynamic": {"max_position_embeddings": 48, "rope_parameters": _DYNAMIC},
    "llama + longrope": {"rope_parameters": _LONGROPE},
    "llama + yarn": {"rope_parameters": _YARN},
    "phi3 + longrope": {"original_max_position_embeddings": 48, "rope_parameters": _LONGROPE},
    "phimoe + longrope": {
        "original_max_position_embeddings": 48,
        "rope_parameters": _LONGROPE | {"short_mscale": 1.1, "long_mscale": 1.3},
    },
}


@dataclass(frozen=True)
class Found:
    """Largest differences from `generate`, as shares of the largest logit."""

    whole: float
    cached: float
    recomputed: float
    reference: float
    how: str


def tiny(name: str, context: int = 128) -> torch.nn.Module:
    family, _, _ = name.partition(" + ")
    kind = CONFIG_MAPPING[family]
    plain = kind()
    if plain.get_text_config(decoder=True) is not plain:
        raise ValueError("its text model is a family of its own")
    known = set(vars(plain))
    values = {each: value for names, value in SIZES.items() for each in names if each in known}
    if "max_position_embeddings" in known:
        values["max_position_embeddings"] = context
    if "kv_lora_rank" in known:  # its latent keys have all heads
        values["num_key_value_heads"] = values["num_attention_heads"]
    torch.manual_seed(1)
    config = kind(**values | {"use_cache": True, "tie_word_embeddings": False} | VARIANTS.get(name, {}))
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).float().eval()
    if sum(parameter.numel() for parameter in model.parameters()) > 20_000_000:
        raise ValueError("it is not small with these sizes")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.15)
    model.generation_config = GenerationConfig(eos_token_id=None, pad_token_id=0, bos_token_id=0)
    return model


def generated(model: Any, text: list[int]) -> torch.Tensor:
    """Logits [NEW, V] that `generate` has before each new token of a text, made to write it."""

    def force(ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        return torch.full_like(scores, -torch.inf).index_fill(1, torch.tensor([text[ids.shape[1]]]), 0.0)

    ids = torch.tensor([text[:PROMPT]])
    found = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=NEW,
        do_sample=False,
        logits_processor=[force],
        output_logits=True,
        return_dict_in_generate=True,
    )
    assert found.sequences[0].tolist() == text
    return torch.cat(found.logits).float()


def ours(model: TransformersModel, text: list[int], use_cache: bool) -> torch.Tensor:
    """The same rows by a context: a prompt in pieces, then rounds of drafts that are half refused."""
    context = model.open(use_cache=use_cache)
    if isinstance(context, Expecting):
        context.expect(PROMPT)
    for begin in range(0, PROMPT, PIECE):
        rows = [context.extend(text[begin : min(begin + PIECE, PROMPT)], 1)]
    while context.length < len(text) - 1:
        base = context.length
        fresh = text[base : min(base + 3, len(text) - 1)]
        got = context.extend([*fresh, 5, 9], len(fresh) + 2)
        context.rewind(base + len(fresh))
        rows.append(got[: len(fresh)])
    return torch.cat(rows)


def look(name: str) -> Found:
    """What a family does. Whatever transformers raises is the caller's."""
    model: Any = tiny(name)
    text = [(37 * i + 5) % 300 + 3 for i in range(PROMPT + NEW)]
    expected = generated(model, text)
    scale = float(expected.abs().max())
    fresh: Any = tiny(name)
    with torch.no_grad():
        whole = fresh(torch.tensor([text[:-1]]), use_cache=False).logits[0, PROMPT - 1 :].float()
    made = TransformersModel(tiny(name))
    rows = (
        whole,
        ours(made, text, use_cache=True),
        ours(made, text, use_cache=False),
        torch.stack(list(made.reference(text[:PROMPT], text[PROMPT:]))),
    )
    shares = [float((row - expected).abs().max()) / scale for row in rows]
    kept = made.open().recomputes
    return Found(*shares, "recomputes" if kept else "keeps a cache")


def families() -> Iterator[str]:
    causal = {config.model_type for config in MODEL_FOR_CAUSAL_LM_MAPPING}
    yield from sorted({*(name for name in CONFIG_MAPPING if name in causal), *VARIANTS})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="*", help="model types of transformers; all of them without one")
    wanted = parser.parse_args().families or list(families())
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    print(
        "| family | whole text in one pass | pieces and rewinds | the same, cache off | the check's yardstick | how |"
    )
    print("|---|---|---|---|---|---|")
    equal, depends, wrong, unmade = [], [], [], []
    for name in wanted:
        try:
            found = look(name)
        except Exception as error:  # a family that is not to be had so small, in ways of its own
            unmade.append(f"{name} ({type(error).__name__}: {first_line(error)[:90]})")
            continue
        figures = (found.whole, found.cached, found.recomputed, found.reference)
        good = [figure <= TOLERANCE for figure in figures]  # False for NaN
        if not all(good[1:]):
            wrong.append(name)
        (equal if good[0] else depends).append(name)
        if not all(good):
            print(f"| {name} | {' | '.join(f'{figure:.1e}' for figure in figures)} | {found.how} |", flush=True)
    print(f"\nThe same however a text is cut ({len(equal)}): {', '.join(equal)}.")
    print(f"\nDepending on it ({len(depends)}): {', '.join(depends)}.")
    print(f"\nNot what `generate` has ({len(wrong)}): {', '.join(wrong) or 'none'}.")
    print(f"\nNot made so small ({len(unmade)}): {'; '.join(unmade)}.")


if __name__ == "__main__":
    main()
