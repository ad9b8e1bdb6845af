"""Connect to a target on a server: which model it is, whose tokenizer it has, and what can be asked of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import msgspec
from transformers import GenerationConfig

from specdec_tui.backends.answering import Drawing
from specdec_tui.backends.compatibility import known_tokens
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.description import ModelDescription, describe
from specdec_tui.backends.end_tokens import end_ids
from specdec_tui.backends.pair import SERVED_BY, LoadError, ModelInfo, Progress, ReportProgress
from specdec_tui.backends.presets import ModelSpec
from specdec_tui.backends.remote.address import place_of
from specdec_tui.backends.remote.capabilities import Capabilities, probe
from specdec_tui.backends.remote.client import Client, ServerError
from specdec_tui.backends.remote.completions import Completions, body
from specdec_tui.backends.remote.model import RemoteModel
from specdec_tui.backends.weight_forms import INT8
from specdec_tui.backends.weights import asked_by
from specdec_tui.doors.characters import named
from specdec_tui.settings import ModelChoice
from specdec_tui.variables import api_key

_PROBE = "The capital of France is Paris, and the capital of Spain is"
_SPELT = ("Hello, world! 12 345 apples", "naïve  café\n\t— 雲 🙂 don't")
_USUAL = 200  # tokens of the text that ways are timed behind
_SHOWN = 8  # ids or names in a message

Cancelled = Callable[[], bool]


class _Model(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Models(msgspec.Struct):
    data: list[_Model] = []


@dataclass(frozen=True, slots=True, eq=False)
class Remote:
    """A target on a server, and what is known of it from the files of its tokenizer."""

    model: RemoteModel
    description: ModelDescription
    end_ids: frozenset[int]
    info: ModelInfo


def models_of(url: str) -> list[tuple[str, int | None]]:
    """The names of a server's models, with the tokens that each has room for, where it says. LoadError."""
    try:
        client = Client(url, api_key())
        try:
            return [(model.id, model.max_model_len) for model in _listed(client, url, lambda: False)]
        finally:
            client.close()
    except ServerError as error:
        raise LoadError(f"{place_of(url)}: {error}") from error


def _listed(client: Client, url: str, cancelled: Cancelled) -> list[_Model]:
    try:
        return client.get("/models", _Models, cancelled).body.data
    except ServerError as error:
        if error.status == 404 and not url.rstrip("/").endswith("/v1"):
            raise ServerError(f"{error}: its API mostly is at an address that ends in /v1", "refused", 404) from None
        raise


def connect(choice: ModelChoice, report: ReportProgress, cancelled: Cancelled) -> Remote:
    """The target of a choice with a `target_url`. LoadError, with one line, where drafts cannot be verified by it."""
    where = place_of(choice.target_url)
    try:
        report(Progress(f"Connecting to {where}"))
        client = Client(choice.target_url, api_key())
        try:
            return _connected(client, choice, where, report, cancelled)
        except BaseException:
            client.close()
            raise
    except ServerError as error:
        raise LoadError(f"{where}: {error}") from error


def _connected(client: Client, choice: ModelChoice, where: str, report: ReportProgress, cancelled: Cancelled) -> Remote:
    if choice.target_quantize or choice.quantize:
        raise LoadError(
            "quantize: a target on a server is quantized there: leave it out, or give --drafter-quantize for drafters."
        )
    if choice.weights == INT8:
        raise LoadError(f"weights: a target on a server has its own: {INT8} is for one that runs here: leave it out.")
    listed = {model.id: model for model in _listed(client, choice.target_url, cancelled)}
    name = choice.target or (next(iter(listed)) if len(listed) == 1 else "")
    if name not in listed:
        has = ", ".join(map(named, list(listed)[:_SHOWN])) or "none"
        wanted = f"has no model {named(name)}: it has {has}" if name else f"has {len(listed)} models: name one ({has})"
        raise LoadError(f"{where} {wanted}")
    report(Progress(f"Reading the tokenizer of {name}"))
    description = _described(choice.tokenizer or name, name, choice, report)
    known_tokens(description)
    completions = Completions(client, name, description.text_config.vocab_size)
    _check_ids(completions, description, cancelled)
    report(Progress(f"Trying {name} on {where}"))
    ids = _ids(description, _PROBE)
    length = listed[name].max_model_len or context_length_of(description.text_config)
    usual = (ids * _USUAL)[: min(_USUAL, (length or _USUAL) // 2)]
    capabilities = probe(completions, ids, usual, cancelled)
    print_, _ = completions.prefixes(ids, (), Drawing(), min(10, capabilities.alternatives), cancelled)
    model = RemoteModel(completions, capabilities, length, ids, print_[0])
    files: Any = SimpleNamespace(config=description.config, generation_config=_generation_config(description))
    ends, told = end_ids(name, files, description.tokenizer)
    info = ModelInfo(
        name=name,
        device=SERVED_BY + where,
        dtype="served",
        quantization="none",
        parameters=0,
        memory_bytes=0,
        context_length=length,
        caveats=told,
        generation_config_not_applied=asked_by(description, files),
        seen=sentences(name, capabilities),
    )
    return Remote(model, description, ends, info)


def sentences(name: str, capabilities: Capabilities) -> tuple[str, ...]:
    """What a server was seen to do, for a person."""
    ways = {"scores": capabilities.scores_seconds, "prefixes": capabilities.prefixes_seconds}
    words = {"scores": "one prompt with its log-probabilities", "prefixes": "γ+1 prompts as one batch"}
    took = ", ".join(f"{words[way]} {seconds * 1e3:.0f} ms" for way, seconds in ways.items() if seconds is not None)
    draws = ", ".join(sorted(capabilities.draws)).replace("_", "-") or "nothing"
    return (
        f"{name}: {capabilities.alternatives} alternatives; a round of 4 drafts: {took}; its draws follow {draws}.",
        *(f"{name}: {reason}." for reason in capabilities.why_not),
    )


def _described(source: str, name: str, choice: ModelChoice, report: ReportProgress) -> ModelDescription:
    spec = ModelSpec(source, choice.dtype, choice.device, "none")
    try:
        found = describe(spec, report)
    except LoadError as error:
        if choice.tokenizer:
            raise
        why = str(error).partition(" The preset ")[0].rstrip(".")
        raise LoadError(
            f"the tokenizer of the server's {named(name)} is not found by that name: give its hub id or folder by "
            f"--tokenizer ({why})."
        ) from error
    if found.is_encoder_decoder:
        raise LoadError(f"{name}: an encoder-decoder model cannot be verified on a server")
    return replace(found, spec=replace(spec, source=name))


def _generation_config(description: ModelDescription) -> GenerationConfig:
    try:
        return GenerationConfig.from_pretrained(description.location.folder)
    except OSError:
        return GenerationConfig.from_model_config(description.config)


def _ids(description: ModelDescription, text: str) -> list[int]:
    return list(description.tokenizer(text)["input_ids"])


def _check_ids(completions: Completions, description: ModelDescription, cancelled: Cancelled) -> None:
    """LoadError where the server reads a text as other ids than the tokenizer here."""
    for text in _SPELT:
        question = {**body(completions.name, Drawing(), 1), "prompt": text}
        choices = completions.post(question, cancelled).body.choices
        theirs = choices[0].prompt_token_ids if choices else None
        if theirs is None:
            return  # it does not say
        readings = [list(description.tokenizer(text, add_special_tokens=add)["input_ids"]) for add in (True, False)]
        if theirs not in readings:
            raise LoadError(
                f"{completions.name}: the tokenizer here is not the server's: {text!r} is {readings[1][:_SHOWN]} here "
                f"and {theirs[:_SHOWN]} there. Name the right one by --tokenizer."
            )
