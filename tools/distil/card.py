"""The model card: how a drafter was made, with every setting, seed and time."""

from __future__ import annotations

import math
from typing import Any

from distil.conversation import CUT
from distil.evaluate import table

CARD_MARK = "`tools/distil_drafter.py`"
"""Words by which a card is known as one of this tool."""

_SORTS = {
    "bare": "the bare chat prefix, so that the target makes up the question as well",
    "question": "a question made from a template and a topic",
    "beginning": "the first words of a question, which the target finishes",
    "raw": "an opening of plain prose or code",
}


_TOLD = ("target", "mixture", "temperatures", "user_temperature", "finished", "budget_minutes")
"""What is told in words, or says nothing of the result."""


def _rows(entries: dict[str, Any]) -> str:
    return "\n".join(f"| {name} | {value} |" for name, value in entries.items() if value is not None)


def _temperatures(rows: list[list[Any]]) -> str:
    parts = (f"{t:g} ({share:.0%}{'' if cut else ', tail kept'})" for share, t, cut in rows)
    return ", ".join(parts)


def model_card(
    target_name: str,
    target_licence: str,
    generation_settings: dict[str, Any],
    generation: dict[str, Any],
    settings: dict[str, Any],
    training: dict[str, Any],
    evaluation: dict[str, Any],
) -> str:
    """The README.md of an exported drafter, from what the stages recorded; no evaluation, no section about it."""
    short = target_name.rsplit("/", 1)[-1]
    mixture = "\n".join(f"- {share:.0%}: {_SORTS[name]}" for name, share in generation_settings["mixture"])
    heads = f"{settings['heads']} heads ({settings['kv_heads']} for keys and values)"
    text = f"""---
license: {target_licence.lower()}
base_model: {target_name}
pipeline_tag: text-generation
tags: [speculative-decoding, draft-model, distillation]
---
# A drafter for {short}

A tiny Llama that guesses what {short} would write next. It is good for one thing: drafting for that model
in speculative decoding. On its own it writes poor English.

Llama of width {settings["width"]} with {settings["layers"]} layers, {heads}, MLP {settings["mlp"]}, tied embeddings:
{training["parameters"]:,} parameters in bfloat16. Tokenizer and chat template are the target's.
"""
    if evaluation:
        text += f"""
## How well it guesses
On {evaluation["prompts"]} held-out prompts, over answers of the target itself, both models in
float32; mean over the prompts, lowest and highest prompt in parentheses. T is the temperature of both
distributions, and of the answers where these are sampled. The second table replays greedy speculative
decoding with γ drafts per round. It took {evaluation["seconds"]:g} seconds.

{table(evaluation)}
"""
    text += f"""
## How it was made
By distillation, without any data set, with {CARD_MARK}.

1. The target wrote the text, and its {generation_settings["k"]} largest probabilities at every place were kept.
   Rows began with
{_indented(mixture)}

   Temperatures of the answers: {_temperatures(generation_settings["temperatures"])};
   of made-up questions: {generation_settings["user_temperature"]}. Unless the tail was kept, tokens under
   {round(100 * math.exp(CUT))} % of the top probability were not sampled.
   No question or beginning from a template and no scripted follow-up is a held-out prompt; what the target
   made up by itself was not compared with these.
2. The embedding began as the principal components of the target's. The loss of a token is
   {settings["kl"]:g} times the KL divergence from target to drafter (the target's tail as one outcome), plus
   {settings["tv"]:g} times the total variation distance (one minus the acceptance rate), plus
   {settings["top"]:g} times the cross entropy of the target's first choice. AdamW (0.9, 0.95), linear warm-up,
   then linear decay to zero, gradients clipped at 1.

| text | |
|---|---|
{_rows({name: value for name, value in generation_settings.items() if name not in _TOLD})}
{_rows({name.replace("_", " "): value for name, value in generation.items() if name not in _TOLD})}

| training | |
|---|---|
{_rows(settings)}
{_rows({name.replace("_", " "): value for name, value in training.items() if name != "last"})}

## Licence
{target_licence}. It is derived from {target_name} ({target_licence}): the tokenizer is that model's, its embedding
was the starting point, and its outputs and probabilities are what the drafter was trained on.
"""
    return text


def _indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.splitlines())
