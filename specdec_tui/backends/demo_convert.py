"""Turn the demo target's GGUF file into a folder that transformers loads at once.

transformers can read the file too, but parses it several times over (35 s on two cores against
6 s here), and the tokenizer that it makes of it does not split digits. No torch here.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer

from specdec_tui.backends.pair import LoadError, Progress, ReportProgress

_STAGE = "Preparing the demo target (once)"
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")

_OUTER_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(file: Path, tokenizer_folder: Path, folder: Path, progress: ReportProgress) -> None:
    """Write the dequantized float32 weights, config and tokenizer of a Llama GGUF file into `folder`.

    The tokenizer is copied from `tokenizer_folder`, which must have the file's tokens, merges and
    chat template and split digits. LoadError when it does not fit or the file is not understood.
    """
    progress(Progress(f"{_STAGE}: reading", 0.0))
    try:
        reader = gguf.GGUFReader(file)
        config = _config(reader)
    except (KeyError, ValueError, IndexError) as error:
        raise LoadError(f"The demo target's file cannot be read: {error}") from error
    _check_tokenizer(reader, tokenizer_folder)
    folder.mkdir()
    for name in _TOKENIZER_FILES:
        shutil.copyfile(tokenizer_folder / name, folder / name)
    weights: dict[str, np.ndarray] = {}
    for done, tensor in enumerate(reader.tensors):
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
        weights[_name(tensor.name)] = np.ascontiguousarray(_as_halves(tensor.name, values, config))
        progress(Progress(f"{_STAGE}: weights", done / len(reader.tensors)))
    progress(Progress(f"{_STAGE}: saving", None))
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    ids = {name: config[name] for name in ("bos_token_id", "eos_token_id", "pad_token_id")}
    (folder / "generation_config.json").write_text(json.dumps(ids, indent=2), encoding="utf-8")


def _config(reader: gguf.GGUFReader) -> dict[str, Any]:
    def value(key: str) -> Any:
        return reader.fields[key].contents()

    if value("general.architecture") != "llama":
        raise ValueError(f"architecture {value('general.architecture')}")
    heads = value("llama.attention.head_count")
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "vocab_size": value("llama.vocab_size"),
        "hidden_size": value("llama.embedding_length"),
        "intermediate_size": value("llama.feed_forward_length"),
        "num_hidden_layers": value("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("llama.attention.head_count_kv"),
        "head_dim": value("llama.embedding_length") // heads,
        "max_position_embeddings": value("llama.context_length"),
        "rms_norm_eps": value("llama.attention.layer_norm_rms_epsilon"),
        "rope_parameters": {"rope_type": "default", "rope_theta": value("llama.rope.freq_base")},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": not any(tensor.name == "output.weight" for tensor in reader.tensors),
        "bos_token_id": value("tokenizer.ggml.bos_token_id"),
        "eos_token_id": value("tokenizer.ggml.eos_token_id"),
        "pad_token_id": value("tokenizer.ggml.padding_token_id"),
    }


def _name(gguf_name: str) -> str:
    if gguf_name in _OUTER_NAMES:
        return _OUTER_NAMES[gguf_name]
    _, layer, part, kind = gguf_name.split(".")
    return f"model.layers.{layer}.{_LAYER_NAMES[part]}.{kind}"


def _as_halves(gguf_name: str, values: np.ndarray, config: dict[str, Any]) -> np.ndarray:
    """Reorder query and key rows: GGUF keeps the two numbers of a rotation side by side, we half a head apart."""
    heads = {"attn_q": config["num_attention_heads"], "attn_k": config["num_key_value_heads"]}
    part = gguf_name.split(".")[-2]
    if part not in heads:
        return values
    rows, width = values.shape
    return values.reshape(heads[part], rows // heads[part] // 2, 2, width).swapaxes(1, 2).reshape(rows, width)


def _check_tokenizer(reader: gguf.GGUFReader, folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"] | {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    merges = [merge if isinstance(merge, str) else " ".join(merge) for merge in tokenizer["model"]["merges"]]
    same = (
        sorted(vocabulary, key=vocabulary.__getitem__) == reader.fields["tokenizer.ggml.tokens"].contents()
        and merges == reader.fields["tokenizer.ggml.merges"].contents()
        and (folder / "chat_template.jinja").read_text(encoding="utf-8")
        == reader.fields["tokenizer.chat_template"].contents()
    )
    pieces = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("  3 apples, 12").tokens
    if not same or pieces[-3:] != ["Ġ", "1", "2"]:
        raise LoadError("The demo target's tokenizer is not the one this program expects; please report it.")
