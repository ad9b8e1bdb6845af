"""Load a pair: everything that can be checked is checked before any weights are read."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel

from specdec_tui.backends import compatibility, config_faults, hub, memory, preset_form
from specdec_tui.backends.agreed import Trial, wake
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.causal_probe import refuse_what_looks_ahead
from specdec_tui.backends.context_lengths import context_length_of
from specdec_tui.backends.description import ModelDescription, describe
from specdec_tui.backends.encoder_decoder import EncoderDecoderModel, check_start
from specdec_tui.backends.end_tokens import end_ids, ends_elsewhere
from specdec_tui.backends.errors import first_line, is_out_of_memory, panics_raise, plainly
from specdec_tui.backends.generate_probe import Inputs
from specdec_tui.backends.generation_asks import settings_asked
from specdec_tui.backends.kept_pairs import keep_pair, trial_of
from specdec_tui.backends.lean.fit import agrees, fits, why_not
from specdec_tui.backends.loaded_pair import Pair, Runnable
from specdec_tui.backends.model import LoadedDrafter, OtherTokenizer, WeightForms
from specdec_tui.backends.packed_load import PackedFile
from specdec_tui.backends.pair import LoadError, ModelInfo, PairInfo, Progress, ReportProgress
from specdec_tui.backends.presets import ModelSpec, PairSpec, resolve
from specdec_tui.backends.quiet import Heart, between_compilations, quiet
from specdec_tui.backends.remote.connect import Remote, connect
from specdec_tui.backends.small_files import FileProblem
from specdec_tui.backends.tokenizer import PromptTokenizer, chance_of
from specdec_tui.backends.weight_forms import as_asked, check_asked, with_form
from specdec_tui.backends.weights import (
    asked_by,
    bytes_packed_on_gpu,
    check_quantization,
    info_of,
    load_weights,
    resolve_dtype,
    sampling_by,
)
from specdec_tui.settings import ModelChoice

if TYPE_CHECKING:
    from specdec_tui.backends.lean.model import LeanModel

_TRIAL = 40  # tokens
_NO_MEMORY = "Not enough memory:"


def load_pair(choice: ModelChoice, progress: ReportProgress) -> Pair:
    """Load what a choice names. LoadError, with one line that says what is wrong, when it cannot be loaded.

    Nothing is printed; the caller decides about threads and keeps its previous pair until this returns.
    `progress` is asked between the layers and tensors of a load: what it raises abandons the load.
    """
    heart = Heart(progress)
    try:
        with panics_raise(), quiet(heart.beat):
            return _load(choice, heart)
    except LoadError as error:
        if is_out_of_memory(error) and not str(error).startswith(_NO_MEMORY):
            raise LoadError(f"{_NO_MEMORY} {error}") from error
        raise
    except Exception as error:
        if is_out_of_memory(error):
            raise LoadError(
                f"{_NO_MEMORY} the models filled it while they were loaded. Try a smaller model, dtype or int8."
            ) from error
        raise LoadError(f"The models cannot be loaded: {plainly(error)}") from error
    except BaseException as stopped:
        traceback.clear_frames(stopped.__traceback__)  # they hold what was loaded so far
        memory.give_back()
        raise


def _load(choice: ModelChoice, heart: Heart) -> Pair:
    spec = resolve(choice)
    device = memory.resolve_device(choice.device)
    if choice.tokenizer and not choice.target_url:
        raise LoadError("tokenizer: it is that of a target on a server: give --target-url too, or leave it out.")
    server = connect(choice, heart.report, heart.beats) if choice.target_url else None
    try:
        return _loaded(spec, choice, heart, device, server)
    except BaseException:
        if server is not None:
            server.model.close()
        raise


def _loaded(spec: PairSpec, choice: ModelChoice, heart: Heart, device: str, server: Remote | None) -> Pair:
    progress = heart.report
    trial = None if server is not None or device != "cpu" else trial_of(spec, progress)
    target = _describe(spec.target, progress) if server is None else server.description
    models = [target]
    checks, notes = [], list(spec.notes)
    compatibility.known_tokens(target)
    for drafter in spec.drafters:
        models.append(_describe(drafter, progress, target))
        checks.append(compatibility.check(target, models[-1]))
        whose = f"{drafter.name}: " if len(spec.drafters) > 1 else ""
        notes += [whose + note for note in checks[-1].notes]
    if server is not None:
        del models[0]  # it is loaded there
    dtype = resolve_dtype(choice.dtype, device)
    models, told_form = preset_form.faster(models, device, dtype)
    notes += [told_form] if told_form else []
    for model in models:
        check_quantization(model)
        check_asked(model, device, str(dtype).removeprefix("torch."))
    files = [_packed_file(model, device, dtype) for model in models]
    needs = [
        memory.estimate(
            m.spec.name,
            m.config,
            dtype,
            m.spec.quantization,
            bytes_packed_on_gpu(m, device, dtype) if file is None else file.bytes_in(m.spec.weights),
        )
        for m, file in zip(models, files, strict=True)
    ]
    places = memory.place(needs, device, models[0].spec.quantization) if needs else []
    notes += [place.note for place in places if place.note]

    loaded: list[Runnable] = []
    ends: frozenset[int] = frozenset()
    asked: dict[str, Any] = {}
    applied: frozenset[str] = frozenset()
    infos: list[ModelInfo] = []
    others: list[OtherTokenizer | None] = []
    packs: list[LeanModel] = []
    models = [_with_weights(model, progress) for model in models]
    for model, need in zip(models, needs, strict=True):
        with _named(model):
            _refuse_other_weights(model, need)
    if server is not None:
        loaded, ends, infos = [server.model], server.end_ids, [server.info]
        notes += server.info.notices
    for index, (model, file, need, place) in enumerate(zip(models, files, needs, places, strict=True), len(loaded)):
        with _named(model):
            progress(Progress(f"Loading {model.spec.name}", (index + 0.1) / (len(checks) + 1)))
            packed, note = (None, "") if file is None else _packed(file, model.spec.name, heart)
            if packed is None or file is None:
                weights, caveats = load_weights(model, dtype, place)
            else:
                weights, caveats = file.shell, packed.told
            caveats += model.told
            if index == 0 and (chance := chance_of(model.tokenizer)):
                caveats += (
                    f"{model.spec.name}: its tokenizer has {chance}: the same prompt becomes other tokens each time, "
                    "as it does for generate.",
                )
            if packed is None:
                refuse_what_looks_ahead(model.spec.name, weights)
            progress(Progress(f"Trying {model.spec.name}", (index + 0.9) / (len(checks) + 1)))
            context = context_length_of(weights.config.get_text_config(decoder=True))
            if index == 0:
                ends, told = end_ids(model.spec.name, weights, target.tokenizer)
            elif (translation := checks[index - 1].translation) is None:
                others.append(None)
                told = ends_elsewhere(model.spec.name, weights, ends)
            else:
                own_ends, told = end_ids(model.spec.name, weights, model.tokenizer)
                own_tokenizer = PromptTokenizer(model.tokenizer, model.spec.name, for_encoder=model.is_encoder_decoder)
                others.append(OtherTokenizer(translation, own_tokenizer, own_ends))
            if model.is_encoder_decoder:
                check_start(model.spec.name, weights)
            plain = None
            if packed is None:
                plain = EncoderDecoderModel(weights) if model.is_encoder_decoder else TransformersModel(weights)
                told += _of_inputs(model.spec.name, weights.config.model_type, plain.inputs)
            asks = asked_by(model, weights)
            if index == 0:
                if model.location.gguf_file is None:
                    asked, applied = settings_asked(asks)
                if drawn := sampling_by(model, weights):
                    notes.append(
                        f"{model.spec.name}: its files ask for sampled text ({drawn}); here the processor decides, "
                        "greedy unless you choose another."
                    )
            done = applied if index == 0 else ()
            info = info_of(model, weights, need.parameters, context, (*caveats, *told), asked=asks, applied=done)
            runnable: Runnable
            if packed is not None:
                runnable = packed
                packs.append(packed)
            else:
                assert plain is not None
                again = partial(_load_again, model, dtype, place)
                notes += [note] if note else []
                runnable, note = _runnable(weights, plain, again, model, heart)
            notes += [note] if note else []
            runnable = as_asked(model.spec, runnable)
            loaded.append(runnable)
            infos.append(with_form(_as_held(info, runnable), runnable))
            notes += info.notices
    progress(Progress("Ready", 1.0))

    tokenizer = PromptTokenizer(target.tokenizer, target.spec.name, for_encoder=target.is_encoder_decoder)
    if target.is_encoder_decoder:
        notes.append(f"{target.spec.name} is an encoder-decoder model: its encoder reads the prompt as it is, no chat.")
    masks = [fit.shared_ids(loaded[0].vocab_size) for fit in checks]
    pair = Pair(
        target=loaded[0],
        drafters=tuple(
            LoadedDrafter(model, None if mask is None else mask.to(loaded[0].device), other)
            for model, mask, other in zip(loaded[1:], masks, others, strict=True)
        ),
        tokenizer=tokenizer,
        end_ids=ends,
        info=PairInfo(infos[0], tuple(infos[1:]), tokenizer.has_chat_template, tuple(notes)),
        asked=asked,
    )
    if trial is not None and len(packs) == len(loaded):
        keep_pair(trial, packs, needs, pair)
    return pair


@contextmanager
def _named(model: ModelDescription) -> Iterator[None]:
    """Whatever a library raises over a model becomes a LoadError that names it, and the field that is at fault."""
    name = model.spec.name
    try:
        yield
    except LoadError:
        raise
    except FileProblem as problem:  # of a file that was whole when it was looked at
        raise LoadError(f"{name} {problem}.") from None
    except Exception as error:
        if is_out_of_memory(error):
            raise LoadError(
                f"{_NO_MEMORY} {name} filled it while it was loaded. Try a smaller model, dtype or int8."
            ) from error
        why = config_faults.fault(error, model.config.to_dict(), config_faults.run)
        raise LoadError(f"{name}: it does not run: {why}") from error


def _packed_file(model: ModelDescription, device: str, dtype: torch.dtype) -> PackedFile | None:
    with _named(model):
        return PackedFile.of(model, device, dtype)


def _load_again(model: ModelDescription, dtype: torch.dtype, place: memory.Placement) -> PreTrainedModel:
    return load_weights(model, dtype, place)[0]


def _as_held(info: ModelInfo, runnable: Runnable) -> ModelInfo:
    """What was loaded, as its executor holds it."""
    if not isinstance(runnable, WeightForms):
        return info
    held, where = runnable.held_dtype, str(runnable.device)
    told = "" if held == info.dtype else held
    return replace(info, device=where, memory_bytes=runnable.memory_bytes, held_dtype=told)


def _of_inputs(name: str, kind: str, inputs: Inputs) -> tuple[str, ...]:
    """LoadError for a model that `generate` gives other inputs than its text; a sentence where that is not known."""
    if inputs.refused:
        raise LoadError(f"{name} ({kind}): {inputs.refused}: texts written here would not be those of generate.")
    if not inputs.unknown:
        return ()
    return (f"{name}: generate fails on it ({inputs.unknown}): whether its texts are those of generate is not known.",)


def _packed(file: PackedFile, name: str, heart: Heart) -> tuple[LeanModel | None, str]:
    """A GGUF file's weights as they are packed, or why they have to be expanded by transformers."""
    slower = f"{name} is expanded, which is slower and takes more memory: "
    try:
        with between_compilations(lambda: heart.beat_at(f"First-time compiling: {name} (up to a minute)")):
            model, reason = file.load(heart)
    except (LoadError, FileProblem, torch.OutOfMemoryError):
        raise
    except Exception as error:  # compiling for this processor may fail in ways of its own
        reason = f"the packed passes fail on this machine ({type(error).__name__}: {first_line(error)})"
    return (None, f"{slower}{reason}.") if reason else (model, "")


def _runnable(
    weights: PreTrainedModel,
    plain: TransformersModel | EncoderDecoderModel,
    load_again: Callable[[], PreTrainedModel],
    model: ModelDescription,
    heart: Heart,
) -> tuple[Runnable, str]:
    """The fastest executor whose logits are the model's, and a note where that is not what one would expect."""
    name = model.spec.name
    if isinstance(plain, EncoderDecoderModel) or not fits(weights):
        lost = (
            f"{name} keeps a state that cannot be rewound: it recomputes the text at each step, "
            "which takes the longer the longer the text is."
        )
        return plain, "" if plain.rewindable else lost
    slower = f"{name} runs on plain layers, which are slower: "
    reason = why_not()
    if reason:
        return plain, f"{slower}{reason}."
    trial = Trial([model.location.folder], str(weights.dtype))
    ids = [(37 * i + 1) % plain.vocab_size for i in range(min(_TRIAL, plain.context_length or _TRIAL))]
    expected = None if trial.is_known() else plain.forward(ids, len(ids))
    heart.beat()
    try:
        # Only where it is not on the disk from an earlier load: the compiler itself tells.
        with between_compilations(lambda: heart.beat_at(f"First-time compiling: {name} (up to a minute)")):
            from specdec_tui.backends.lean.model import LeanModel

            lean = LeanModel.of(weights)
            if expected is None:
                wake(lean)
                return lean, ""
            if agrees(lean, ids, expected):
                trial.keep()
                return lean, ""
        reason = "the fast ones do not give its logits on this machine"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # compiling for this processor may fail in ways of its own
        reason = f"the fast ones fail on this machine ({type(error).__name__}: {first_line(error)})"
    return TransformersModel(load_again()), f"{slower}{reason}."


def _describe(spec: ModelSpec, progress: ReportProgress, like: ModelDescription | None = None) -> ModelDescription:
    progress(Progress(f"Reading {spec.name}"))
    return describe(spec, progress, like)


def _with_weights(model: ModelDescription, progress: ReportProgress) -> ModelDescription:
    return replace(model, location=hub.fetch_weights(model.location, progress))


def _refuse_other_weights(model: ModelDescription, need: memory.Estimate) -> None:
    """LoadError where the weight files hold less than half of what the config describes: found before memory is taken.

    Not where they are packed. Lesser differences are told, tensor by tensor, by loading them.
    """
    held = hub.contents_of(model.location).parameters
    if held is None or getattr(model.config, "quantization_config", None) is not None:
        return
    if need.parameters > 2 * held:
        raise LoadError(
            f"{model.spec.name}: its config describes {need.parameters:,} weights, but its weight files hold {held:,}: "
            "they do not belong together."
        )
