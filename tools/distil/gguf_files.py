"""A Llama as one GGUF file: weights in blocks, with the tokenizer of another GGUF file; and such a file read back.

Names and the order of rows are llama.cpp's: in queries and keys it keeps the two numbers of a rotation side by side,
where Hugging Face has them half a head apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import torch
from torch import Tensor

from distil.blocks import FORMS, Array, quantize
from distil.files import Refused, brief
from distil.llama import Llama, Shape, from_state

_OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_INNER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOKENIZER = "tokenizer."
_FILE_TYPES = {form: gguf.LlamaFileType[f"MOSTLY_{form}{'_S' if form in ('Q4_K', 'Q5_K') else ''}"] for form in FORMS}


def gguf_name(name: str) -> str:
    """llama.cpp's name of a tensor that transformers calls `name`."""
    if name in _OUTER:
        return _OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    part = rest.removesuffix(".weight")
    return f"blk.{layer}.{_INNER[part]}.weight"


def _side_by_side(weight: Array, heads: int) -> Array:
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def _turned(name: str, shape: Shape) -> int:
    """Heads of a matrix whose rows are turned; 0 for another."""
    return {"q_proj": shape.heads, "k_proj": shape.kv_heads}.get(name.split(".")[-2], 0)


def write_gguf(
    file: Path,
    name: str,
    shape: Shape,
    context: int,
    state: dict[str, Tensor],
    forms: tuple[str, str],
    tokenizer: Path,
) -> None:
    """Write a Hugging Face state as a GGUF file; it has its name only once it is whole.

    `forms`: of the matrices in the layers, and of embedding and head. `tokenizer`: the GGUF file that has it; Refused
    unless its tokens are as many as the rows of the embedding.
    """
    fields = _fields_of(tokenizer)
    tokens = fields["tokenizer.ggml.tokens"].contents()
    if len(tokens) != shape.vocab:
        raise Refused(f"{tokenizer} has {len(tokens):,} tokens, and the model {shape.vocab:,}")
    part = file.with_name(f"{file.name}.part")
    writer = gguf.GGUFWriter(part, "llama")
    writer.add_name(name)
    writer.add_block_count(shape.layers)
    writer.add_context_length(context)
    writer.add_embedding_length(shape.width)
    writer.add_feed_forward_length(shape.mlp)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_file_type(_FILE_TYPES[forms[0]])
    for key, field in fields.items():
        inner = field.types[1] if len(field.types) > 1 else None
        writer.add_key_value(key, field.contents(), field.types[0], inner)
    for tensor, value in state.items():
        weight = value.float().numpy()
        if weight.ndim == 1:
            writer.add_tensor(gguf_name(tensor), weight)
            continue
        if heads := _turned(tensor, shape):
            weight = _side_by_side(weight, heads)
        form = forms[1] if tensor in _OUTER else forms[0]
        if weight.shape[1] % FORMS[form].block:
            raise Refused(f"{form} has blocks of {FORMS[form].block}, and {tensor} has {weight.shape[1]} columns")
        writer.add_tensor(gguf_name(tensor), quantize(form, weight), raw_dtype=gguf.GGMLQuantizationType[form])
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


def _fields_of(file: Path) -> dict[str, Any]:
    """All that a GGUF file says of its tokenizer."""
    found = {key: field for key, field in _reader(file).fields.items() if key.startswith(_TOKENIZER)}
    if "tokenizer.ggml.tokens" not in found:
        raise Refused(f"{file} has no tokenizer")
    return found


def _reader(file: Path) -> gguf.GGUFReader:
    try:
        return gguf.GGUFReader(file)
    except (OSError, ValueError, KeyError, IndexError) as error:
        raise Refused(f"{file} cannot be read as a GGUF file ({brief(error)})") from error


def read_gguf(file: Path) -> tuple[Shape, dict[str, Tensor]]:
    """Shape and weights of a Llama, expanded to float32, under the names of transformers. Refused for another model."""
    from specdec_tui.backends.gguf.config import config_of  # of the app itself, which training does without
    from specdec_tui.backends.gguf.expanded import state_of
    from specdec_tui.backends.gguf.files import GgufFile

    try:
        held = GgufFile(file)
        config = config_of(held)
        return Shape.of_config(config.to_dict()), state_of(held, config, torch.float32)
    except Exception as error:  # of its header, and of a config class over a value that it does not take
        raise Refused(f"{file} cannot be read as a Llama ({brief(error)})") from error


def load_packed(file: Path, device: torch.device, dtype: torch.dtype) -> Llama:
    """The model of a GGUF file, expanded."""
    return from_state(*read_gguf(file), device, dtype)
