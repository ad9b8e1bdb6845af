"""Whether a model looks ahead: tried, because the tables that call it causal list BERT and its kin too.

An encoder's logits at a token depend on what follows; drafting ahead of such a model means nothing, and
neither does its text.
"""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from specdec_tui.backends.causal_lm import context_length_of
from specdec_tui.backends.errors import plainly
from specdec_tui.backends.pair import LoadError

_LENGTH = 12  # tokens, half of them common
# A difference that rounding can make, as a share of the logits' size. Both texts are in one pass of one shape, so that
# a dense model gives equal numbers in any dtype. Experts take the tokens in groups, whose sizes change how half
# precision rounds, and bitsandbytes rounds by all that is in a block.
_DENSE, _EXPERTS, _QUANTIZED = 1e-4, 0.03, 0.2


@torch.inference_mode()
def refuse_what_looks_ahead(name: str, model: PreTrainedModel) -> None:
    """LoadError where the logits of a text depend on what follows it: one pass over two texts with different ends."""
    config = model.config.get_text_config(decoder=True)
    size = max(2, int(config.vocab_size))
    length = min(_LENGTH, context_length_of(config) or _LENGTH)
    if length < 2:
        raise LoadError(f"{name}: its config gives it a context of {length} token: there is no room for an answer.")
    common = length // 2
    ids = torch.tensor([[(7 * i + 3) % size for i in range(length)]] * 2)
    ids[1, common:] = (ids[1, common:] + 1 + size // 3) % size
    place = model.get_input_embeddings().weight.device
    if place.type == "meta":  # offloaded: accelerate's hook moves inputs itself
        place = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        one, other = model.eval()(ids.to(place), use_cache=False).logits[:, :common].float()
    except Exception as error:  # a model's own code, given a config that it was not written for
        raise LoadError(f"{name} ({config.model_type}) fails in its first pass: {plainly(error)}") from error
    scale = float(one.abs().max())
    difference = float((one - other).abs().max())
    if difference > _share(model) * scale:  # False for NaN, which others tell of
        raise LoadError(
            f"{name} ({config.model_type}) looks ahead: its scores for a token depend on what follows "
            "(it is an encoder, or was saved as one): only causal language models are supported."
        )


def _share(model: PreTrainedModel) -> float:
    if getattr(model, "is_quantized", False):
        return _QUANTIZED
    exact = model.dtype in (torch.float32, torch.float64)
    return _DENSE if exact or not any("expert" in name for name, _ in model.named_modules()) else _EXPERTS
