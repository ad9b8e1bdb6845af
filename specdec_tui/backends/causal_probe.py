"""Whether a model looks ahead: tried, because the tables that call it causal list BERT and its kin too.

An encoder's logits at a token depend on what follows; drafting ahead of such a model means nothing, and
neither does its text.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from specdec_tui.backends import config_faults
from specdec_tui.backends.config_fields import wrong
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.errors import is_out_of_memory
from specdec_tui.backends.generate_probe import input_device
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.static_model import window_in_use
from specdec_tui.doors.characters import named

_LENGTH = 12  # tokens, half of them common
_NAMED = 3  # tensors that a message names
# A difference that rounding can make, as a share of the logits' size. Both texts are in one pass of one shape, so that
# a dense model gives equal numbers in any dtype. Experts take the tokens in groups, whose sizes change how half
# precision rounds, and bitsandbytes rounds by all that is in a block.
_DENSE, _EXPERTS, _QUANTIZED = 1e-4, 0.03, 0.2


@torch.inference_mode()
def refuse_what_looks_ahead(name: str, model: PreTrainedModel) -> None:
    """LoadError where the logits of a text depend on what follows it: one pass over two texts with different ends.

    Also where they are no finite numbers, or the pass fails, with the field or weights that are at fault.
    """
    config = model.config.get_text_config(decoder=True)
    size = max(2, int(config.vocab_size))
    length = min(_LENGTH, context_length_of(config) or _LENGTH)
    if length < 2:
        raise LoadError(f"{name}: its config gives it a context of {length} token: there is no room for an answer.")
    window = window_in_use(model)
    if isinstance(window, int) and window < 2:  # of 0 `generate` breaks off, of 1 its cache gives another text
        raise wrong(name, "sliding_window", window, "a whole number from 2 up is needed")
    common = length // 2
    ids = torch.tensor([[(7 * i + 3) % size for i in range(length)]] * 2)
    ids[1, common:] = (ids[1, common:] + 1 + size // 3) % size
    try:
        one, other = model.eval()(**_given(model, ids), use_cache=False).logits[:, :common].float()
    except Exception as error:  # a model's own code, given a config that it was not written for
        if is_out_of_memory(error):
            raise
        fields = model.config.to_dict()
        why = config_faults.fault(error, fields, config_faults.run)
        if why == config_faults.NO_SENSE and getattr(model, "is_quantized", False):
            why = "its quantization_config does not fit it: leave that out if its files hold plain weights"
        raise LoadError(f"{name} ({config.model_type}) fails in its first pass: {why}.") from error
    if not bool(torch.isfinite(one).all()):
        raise LoadError(f"{name}: {_why_not_numbers(model)}.")
    if bad := [name for name, tensor in _weights(model) if _in_use(model, tensor) and bool(tensor.amax().isnan())]:
        # Attention takes scores that are no numbers for those of what it must not see, here and not on every device.
        raise LoadError(f"{name}: {_told_not_finite(bad)}.")
    scale = float(one.abs().max())
    difference = float((one - other).abs().max())
    if difference > _share(model) * scale:
        raise LoadError(
            f"{name} ({config.model_type}) looks ahead: its scores for a token depend on what follows "
            "(it is an encoder, or was saved as one): only causal language models are supported."
        )


def _given(model: PreTrainedModel, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """An encoder may look ahead, and so is given the same prompt twice: its decoder may not."""
    ids = ids.to(input_device(model))
    if not model.config.is_encoder_decoder:
        return {"input_ids": ids}
    return {"input_ids": ids[:1].expand(2, -1), "decoder_input_ids": ids}


def _why_not_numbers(model: PreTrainedModel) -> str:
    """Why scores are not finite: weights that are not, numbers of the config, or a dtype that cannot hold them."""
    dtype = str(model.dtype).removeprefix("torch.")
    bad = not_finite(model)
    narrow = model.dtype is torch.float16
    if bad and not (narrow and not any(bool(tensor.isnan().any()) for _, tensor in bad)):
        return _told_not_finite([name for name, _ in bad])
    odd = config_faults.out_of_the_usual(model.config)
    if odd:
        return f"its scores are not finite numbers (NaN or infinite), for in its config {odd}"
    if model.dtype in (torch.float16, torch.bfloat16):
        wider = "bfloat16 or float32" if narrow else "float32"
        return f"its scores are not finite numbers (NaN or infinite) in {dtype}: try --dtype {wider}"
    return (
        f"its scores are not finite numbers (NaN or infinite) in {dtype}, though its weights are: "
        "its weights or a number of its config cannot be right"
    )


def not_finite(model: PreTrainedModel) -> list[tuple[str, torch.Tensor]]:
    """The weights that hold numbers that are none, or infinite; those that are offloaded are passed over."""
    return [(name, tensor) for name, tensor in _weights(model) if not bool(torch.isfinite(tensor).all())]


def _told_not_finite(names: list[str]) -> str:
    some = ", ".join(map(named, names[:_NAMED])) + (" …" if len(names) > _NAMED else "")
    return (
        f"its weights are not all finite numbers: NaN or infinite ones are in {len(names):,} "
        f"tensor{'s' if len(names) > 1 else ''} ({some}): download it again, or take another model"
    )


def _weights(model: PreTrainedModel) -> Iterator[tuple[str, torch.Tensor]]:
    for name, tensor in model.named_parameters():
        if tensor.is_floating_point() and tensor.device.type != "meta" and tensor.numel():
            yield name, tensor


def _in_use(model: PreTrainedModel, tensor: torch.Tensor) -> bool:
    """Whether every text meets it: rows of an embedding that no text names may hold anything, unless they are tied."""
    embedding = getattr(model.get_input_embeddings(), "weight", None)
    return tensor is not embedding or tensor is getattr(model.get_output_embeddings(), "weight", None)


def _share(model: PreTrainedModel) -> float:
    if getattr(model, "is_quantized", False):
        return _QUANTIZED
    exact = model.dtype in (torch.float32, torch.float64)
    return _DENSE if exact or not any("expert" in name for name, _ in model.named_modules()) else _EXPERTS
