"""What `generate` tells a model beside the text, where that changes what the model says."""

from __future__ import annotations

import torch
from transformers import GenerationConfig, PreTrainedModel


@torch.inference_mode()
def names_places(model: PreTrainedModel, ids: torch.Tensor) -> bool:
    """Whether `generate` numbers the tokens of a text [1, n] from 0 for a model that by itself numbers them otherwise.

    RoBERTa and its kin begin behind their padding id, in training too; whether `generate` passes `position_ids`
    depends on its version, and its text is what ours is held against. So it is asked, where it makes a difference.
    """
    try:
        plain, numbered = (
            model(ids, use_cache=False, **places).logits[0, -1]
            for places in ({}, {"position_ids": torch.arange(ids.shape[1], device=ids.device)[None]})
        )
        if torch.equal(plain, numbered):
            return False
        config = GenerationConfig(
            max_new_tokens=1, do_sample=False, use_cache=False, output_logits=True, return_dict_in_generate=True
        )
        config.pad_token_id = 0
        found = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config)
        told = found.logits[0][0].to(plain.device)
    except Exception:  # a model's own code, or one that `generate` has no use for: its forward pass is all there is
        return False
    return float((told - numbered).abs().max()) < float((told - plain).abs().max())
