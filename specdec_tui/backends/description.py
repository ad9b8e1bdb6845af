"""What can be known of a model before its weights: config, tokenizer, and whether we can run it at all."""

from __future__ import annotations

import filecmp
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import (
    AutoConfig,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from specdec_tui.backends import config_faults, hub
from specdec_tui.backends.config_fields import check_fields, shown, wrong
from specdec_tui.backends.errors import in_words, panics_raise
from specdec_tui.backends.gguf.config import ARCHITECTURES, config_of, is_known, kind_of
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.header import GgufHeader
from specdec_tui.backends.gguf.parts import header_of
from specdec_tui.backends.gguf.shapes import check_tensors
from specdec_tui.backends.gguf.tokenizer import add_turn_ends, missing_pre, tokenizer_of
from specdec_tui.backends.locating import locate
from specdec_tui.backends.model_class import is_encoder_decoder, reads_other_tokens, why_no_language_model
from specdec_tui.backends.pair import LoadError, ReportProgress
from specdec_tui.backends.presets import ModelSpec
from specdec_tui.backends.small_files import FileProblem, read_object
from specdec_tui.doors.characters import named


@dataclass(frozen=True)
class ModelDescription:
    """A model that is about to be loaded. `told`: what a person must know of its files."""

    spec: ModelSpec
    location: hub.Location
    config: PreTrainedConfig
    tokenizer: PreTrainedTokenizerBase
    told: tuple[str, ...] = ()

    @property
    def text_config(self) -> PreTrainedConfig:
        """The part of the config that describes the decoder."""
        return self.config.get_text_config(decoder=True)

    @property
    def is_encoder_decoder(self) -> bool:
        return is_encoder_decoder(self.config)


def describe(spec: ModelSpec, progress: ReportProgress, like: ModelDescription | None = None) -> ModelDescription:
    """Read config and tokenizer; LoadError when this is no language model that we can run.

    `like`: a model whose tokenizer is taken over when the files are the same (reading one takes a while).
    """
    location = locate(spec, progress)
    if (header := _header(spec, location)) is not None and is_known(header):
        return _described_by_header(spec, location, like)
    if location.gguf_file is None:
        _check_beside_the_weights(spec, location.folder)
        _check_tokenizer_config(spec, location.folder)
    where = {"pretrained_model_name_or_path": location.folder, "gguf_file": location.gguf_file}
    try:
        # `trust_remote_code=False` also keeps transformers from asking at the terminal.
        config = AutoConfig.from_pretrained(**where, trust_remote_code=False)
    except Exception as error:
        raise LoadError(_why_no_config(spec, location, error)) from error
    choose_no_code(config)
    if location.gguf_file is not None:  # a config.json was looked at before it was read
        check_fields(spec.name, config.to_dict())
    if reason := why_no_language_model(config):
        raise LoadError(f"{spec.name} {reason}.")
    _check_parts(spec, config)
    if header is None and like is not None and _same_tokenizer(location.folder, like.location.folder):
        return ModelDescription(spec, location, config, like.tokenizer)
    try:
        with panics_raise():
            tokenizer = AutoTokenizer.from_pretrained(**where, trust_remote_code=False)
        size = len(tokenizer.get_vocab())
    except Exception as error:
        if _CODE in str(error):
            raise LoadError(f"{spec.name}: its tokenizer {_NEEDS_CODE}") from error
        raise LoadError(f"{spec.name}: its tokenizer cannot be read: {in_words(error, _DAMAGED)}") from error
    if is_encoder_decoder(config) and (reads_other_tokens(config) or getattr(tokenizer, "separate_vocabs", False)):
        raise LoadError(f"{spec.name} reads one vocabulary and writes another, which is not done here.")
    template = tokenizer.chat_template
    parts = list(template.values()) if isinstance(template, dict) else [template or ""]
    if not all(isinstance(part, str) for part in parts):
        raise LoadError(f"{spec.name}: chat_template in its tokenizer must be text, not {template!r:.60}.")
    if size == 0:
        raise LoadError(f"{spec.name}: its tokenizer has no tokens.")
    if not isinstance(longest := tokenizer.model_max_length, int | float):
        raise LoadError(f"{spec.name}: model_max_length in its tokenizer must be a number, not {longest!r:.60}.")
    told: tuple[str, ...] = ()
    if header is not None:
        told = (f"{spec.name}: its weights are expanded: of {kind_of(header)} they are not read packed.",)
    return ModelDescription(spec, location, config, tokenizer, told)


def _header(spec: ModelSpec, location: hub.Location) -> GgufHeader | None:
    """Of a GGUF file, which was looked at before. LoadError where it is not what it was."""
    try:
        return None if location.gguf_file is None else header_of(location.folder / location.gguf_file)
    except FileProblem as problem:
        raise LoadError(f"{spec.name} {problem}.") from None


def _described_by_header(spec: ModelSpec, location: hub.Location, like: ModelDescription | None) -> ModelDescription:
    """A model of an architecture that is read here, by its GGUF file alone. LoadError names what cannot be read."""
    try:
        file = GgufFile(location.folder / str(location.gguf_file))
        config = config_of(file)
        choose_no_code(config)
        check_fields(spec.name, config.to_dict())
        unused = check_tensors(file, config)
        others = None if like is None else _header(like.spec, like.location)
        if like is not None and others is not None and file.header.same(others, "tokenizer."):
            tokenizer: PreTrainedTokenizerBase = like.tokenizer
        else:
            tokenizer = tokenizer_of(file.header)
        add_turn_ends(file.header, tokenizer, config)
    except FileProblem as problem:
        raise LoadError(f"{spec.name} {problem}.") from None
    except LoadError:
        raise
    except Exception as error:  # of a config class, over a value that it does not take
        raise LoadError(f"{spec.name}: its header makes no config: {in_words(error, _DAMAGED)}") from error
    told = [f"{spec.name}: {missing}." for missing in (missing_pre(file.header),) if missing]
    if unused:
        some = ", ".join(map(named, unused[:3])) + (" …" if len(unused) > 3 else "")
        told.append(
            f"{spec.name}: a {file.header.architecture} model does not use {len(unused):,} of its tensors ({some})."
        )
    return ModelDescription(spec, location, config, tokenizer, tuple(told))


_CODE = "trust_remote_code"
_DAMAGED = "its files are damaged, or not those of one tokenizer"
_NEEDS_CODE = "needs program code from its repository, which is not run here."

# Fields of a config by which transformers would run other code than its own: kernels of the hub, modules of the
# repository, fused layers.
_CHOOSING = ("auto_map", "custom_generate", "fusion_config", "kernel_config", "use_kernels")


def choose_no_code(config: PreTrainedConfig) -> None:
    """Leave no choice of code to a config, nor to those within it: transformers' own for the model is taken.

    Nor of what a pass gives back, which is read here by its names, and of which only the logits are.
    """
    config._attn_implementation = config._experts_implementation = None  # set on those within it too
    for part in (config, *(getattr(config, name, None) for name in config.sub_configs)):
        if not isinstance(part, PreTrainedConfig):
            continue
        for name in _CHOOSING:
            part.__dict__.pop(name, None)
        part.return_dict, part.torchscript = True, False
        part.output_hidden_states = part.output_attentions = False


def _check_parts(spec: ModelSpec, config: PreTrainedConfig) -> None:
    """LoadError for a group that would stand for the whole config, in a model that has no such part."""
    for name in ("decoder", "generator", "text_config"):
        if not isinstance(part := getattr(config, name, None), PreTrainedConfig | None):
            needed = f"leave it out, as a {config.model_type} model has no such part"
            raise wrong(spec.name, name, part, needed)


def _check_beside_the_weights(spec: ModelSpec, folder: Path) -> None:
    """LoadError for files that change what a model writes and cannot be followed."""
    if os.path.exists(folder / "adapter_config.json"):
        raise LoadError(
            f"{spec.name} holds an adapter (adapter_config.json), which is not applied here: merge it into its model "
            "and give that one."
        )
    if not os.path.exists(folder / "generation_config.json"):
        return
    try:
        GenerationConfig.from_dict(read_object(folder / "generation_config.json"))
    except Exception as error:  # FileProblem, and whatever transformers thinks of a field
        why = in_words(error, "a field of it has a value of another kind than it needs")
        raise LoadError(f"{spec.name}: its generation_config.json is not valid: {why}") from error


def _check_tokenizer_config(spec: ModelSpec, folder: Path) -> None:
    """LoadError, naming the field, for what the library would end at in words of Python."""
    path = folder / "tokenizer_config.json"
    config = read_object(path) if os.path.exists(path) else {}
    template = config.get("chat_template")
    named = template if isinstance(template, list) else []
    keys = ("name", "template")
    if not all(isinstance(part, dict) and all(isinstance(part.get(key), str) for key in keys) for part in named):
        raise LoadError(f"{spec.name}: chat_template in its tokenizer must be text, or a list of texts with names.")
    if not isinstance(kind := config.get("tokenizer_class"), str | None):
        raise LoadError(f"{spec.name}: tokenizer_class in its tokenizer must be a name, not {kind!r:.60}.")
    for name in PreTrainedTokenizerBase.SPECIAL_TOKENS_ATTRIBUTES:
        token = config.get(name)
        if not isinstance(token.get("content") if isinstance(token, dict) else token or "", str | list):
            raise LoadError(f"{spec.name}: {name} in its tokenizer must be a token's text, not {token!r:.60}.")


def _same_tokenizer(folder: Path, other: Path) -> bool:
    names = ("tokenizer.json", "tokenizer_config.json")
    same, _, _ = filecmp.cmpfiles(folder, other, names, shallow=False)
    return len(same) == len(names)


def _why_no_config(spec: ModelSpec, location: hub.Location, error: Exception) -> str:
    message = str(error)
    if _CODE in message:
        return f"{spec.name} {_NEEDS_CODE}"
    fields: dict[str, Any] = {}
    if location.gguf_file is not None and "not a valid JSON" in message:
        return f"{spec.name}: its header is damaged: download it again."
    if location.gguf_file is None:
        fields = read_object(location.folder / "config.json")
    elif "not supported yet" in message and (header := _header(spec, location)) is not None:
        known = ", ".join(ARCHITECTURES)
        return (
            f"{spec.name}: {kind_of(header)} are not read from GGUF files, neither here ({known} are) "
            f"nor by transformers {transformers.__version__}. A folder or hub id of the same model may load."
        )
    if location.gguf_file is None and not fields.get("model_type", True):
        return str(wrong(spec.name, "model_type", fields["model_type"], "a name is needed"))
    if "does not recognize this architecture" in message or "not supported yet" in message:
        kind = f"model_type in its config is {shown(fields['model_type'])}, but " if "model_type" in fields else ""
        return (
            f"{spec.name}: {kind}its architecture is not known to transformers {transformers.__version__}. "
            "A newer transformers may know it."
        )
    return f"{spec.name}: its config cannot be read: {config_faults.fault(error, fields, config_faults.read)}"
