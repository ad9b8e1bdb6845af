"""What can be known of a model before its weights: config, tokenizer, and whether we can run it at all."""

from __future__ import annotations

import filecmp
from dataclasses import dataclass
from pathlib import Path

import transformers
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from specdec_tui.backends import demo, hub
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.pair import LoadError, ReportProgress
from specdec_tui.backends.presets import DEMO_DRAFTER, DEMO_TARGET, ModelSpec


@dataclass(frozen=True)
class ModelDescription:
    """A model that is about to be loaded."""

    spec: ModelSpec
    location: hub.Location
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase

    @property
    def text_config(self) -> PreTrainedConfig:
        """The part of the config that describes the decoder."""
        return self.config.get_text_config(decoder=True)


def describe(spec: ModelSpec, progress: ReportProgress, like: ModelDescription | None = None) -> ModelDescription:
    """Read config and tokenizer; LoadError when this is no causal language model that we can run.

    `like`: a model whose tokenizer is taken over when the files are the same (reading one takes a while).
    """
    location = _locate(spec, progress)
    where = {"pretrained_model_name_or_path": location.folder, "gguf_file": location.gguf_file}
    try:
        # `trust_remote_code=False` also keeps transformers from asking at the terminal.
        config = AutoConfig.from_pretrained(**where, trust_remote_code=False)
    except Exception as error:
        raise LoadError(_why_no_config(spec, error)) from error
    if getattr(config, "is_encoder_decoder", False):
        raise LoadError(
            f"{spec.name} is an encoder-decoder model ({config.model_type}): only causal language models are supported."
        )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise LoadError(f"{spec.name} is a {config.model_type} model, which is no causal language model.")
    if like is not None and _same_tokenizer(location.folder, like.location.folder):
        return ModelDescription(spec, location, config, like.tokenizer)
    try:
        tokenizer = AutoTokenizer.from_pretrained(**where, trust_remote_code=False)
        size = len(tokenizer.get_vocab())
    except Exception as error:
        raise LoadError(f"{spec.name}: its tokenizer cannot be read: {first_line(error)}") from error
    if size == 0:
        raise LoadError(f"{spec.name}: its tokenizer has no tokens.")
    return ModelDescription(spec, location, config, tokenizer)


def _same_tokenizer(folder: Path, other: Path) -> bool:
    names = ("tokenizer.json", "tokenizer_config.json")
    same, _, _ = filecmp.cmpfiles(folder, other, names, shallow=False)
    return len(same) == len(names)


def _locate(spec: ModelSpec, progress: ReportProgress) -> hub.Location:
    if spec.source == DEMO_TARGET:
        return hub.Location(spec.source, demo.target_folder(progress))
    if spec.source == DEMO_DRAFTER:
        return hub.Location(spec.source, demo.drafter_folder())
    return hub.locate(spec.source, progress)


def _why_no_config(spec: ModelSpec, error: Exception) -> str:
    message = str(error)
    if "trust_remote_code" in message:
        return f"{spec.name} needs program code from its repository, which is not run here."
    if "does not recognize this architecture" in message or "not supported yet" in message:
        return (
            f"{spec.name}: its architecture is not known to transformers {transformers.__version__} "
            f"({first_line(error)}). A newer transformers may know it."
        )
    return f"{spec.name}: its config cannot be read: {first_line(error)}"
