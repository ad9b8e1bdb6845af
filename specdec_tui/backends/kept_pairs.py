"""Pairs of GGUF files that were loaded on this machine before: what their first load found out is not found out again.

Everything that takes transformers (configs, checks of one model against the other, weights counted, the trial of the
fast passes) was done by `loading`, and is kept beside the stamp of the trial (`agreed`), for the very same files,
versions and machine. Importing transformers' modelling code takes longer than all that is left to do.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, astuple, replace
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from specdec_tui.backends import memory
from specdec_tui.backends.agreed import Trial, is_anything_kept, wake
from specdec_tui.backends.decoder import Decoder, Layer, Rotation
from specdec_tui.backends.errors import panics_raise
from specdec_tui.backends.families import family_from
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.parts import parts_of
from specdec_tui.backends.gguf.tokenizer import tokenizer_of
from specdec_tui.backends.lean.fit import why_not
from specdec_tui.backends.loaded_pair import Pair
from specdec_tui.backends.locating import locate
from specdec_tui.backends.model import LoadedDrafter
from specdec_tui.backends.pair import ModelInfo, PairInfo, Progress, ReportProgress
from specdec_tui.backends.presets import DEMO_DRAFTER, DEMO_TARGET, ModelSpec, PairSpec, resolve
from specdec_tui.backends.quiet import Heart, between_compilations, hush, quiet
from specdec_tui.backends.tokenizer import PromptTokenizer
from specdec_tui.backends.weight_forms import as_asked
from specdec_tui.settings import ModelChoice

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from specdec_tui.backends.lean.model import LeanModel

_BUILT_IN = (DEMO_TARGET, DEMO_DRAFTER)
_FLOAT32 = ("auto", "float32")
_PARTS = (
    *("transformers", "transformers.models", "accelerate", "torch.distributed.tensor", "torch._dynamo"),
    *("transformers.modeling_utils", "specdec_tui.backends.packed_load"),
)
"""Modules that transformers' layers need, of which none takes much of a second alone behind those before it."""


def kept_pair(choice: ModelChoice, progress: ReportProgress) -> Pair | None:
    """A pair as `loading.load_pair` gives it; None where it was not loaded before, or anything is not as it was.

    What goes wrong here goes wrong there too, and is told there. `progress` may abandon it.
    """
    heart = Heart(progress)
    try:
        spec = resolve(choice)
        if not is_anything_kept() or choice.target_url or choice.tokenizer or choice.dtype not in _FLOAT32:
            return None
        with panics_raise(), quiet(heart.beat):
            if memory.resolve_device(choice.device) != "cpu" or why_not():
                return None
            return _loaded(spec, heart)
    except Exception:
        return None


def trial_of(spec: PairSpec, progress: ReportProgress) -> Trial | None:
    """What a load of a pair depends on, asked before it reads any file; None for a pair of which nothing is kept.

    LoadError where a file is not to be had.
    """
    found = _files_of(spec, progress)
    return None if found is None else _trial(spec, found)


def keep_pair(trial: Trial, models: Sequence[LeanModel], needs: Sequence[memory.Estimate], pair: Pair) -> None:
    """What the next load of a pair of packed models on the CPU need not find out: target first, as in `pair`."""
    if pair.asked or any(drafter.other is not None for drafter in pair.drafters):
        return
    found = {
        "models": [_written(model) for model in models],
        "needs": [asdict(need) for need in needs],
        "masks": [None if d.shared_ids is None else (~d.shared_ids).nonzero()[:, 0].tolist() for d in pair.drafters],
        "ends": sorted(pair.end_ids),
        "info": asdict(pair.info),
    }
    with suppress(TypeError, ValueError):  # a value that JSON has no words for
        text = json.dumps(found)
        if _info(json.loads(text)["info"]) == pair.info:
            trial.keep(text)


def bring_in_layers(cancelled: Callable[[], bool]) -> None:
    """Import what checks of a text need (`model.Referenced`), while nobody waits: a part at a time."""
    for part in _PARTS:
        if cancelled():
            return
        with suppress(Exception):  # fails again where it is needed, and is told there
            import_module(part)
    hush()


def _is_file(model: ModelSpec) -> bool:
    return model.quantization == "none" and (model.source in _BUILT_IN or model.source.lower().endswith(".gguf"))


def _files_of(spec: PairSpec, progress: ReportProgress) -> list[Path] | None:
    """The GGUF files of a pair, of a split one the first part; None where it is of others. LoadError."""
    models, paths = (spec.target, *spec.drafters), []
    if not all(map(_is_file, models)):
        return None
    for model in models:
        progress(Progress(f"Reading {model.name}"))
        location = locate(model, progress)
        if location.gguf_file is None:
            return None
        paths.append(location.folder / location.gguf_file)
    return paths


def _trial(spec: PairSpec, paths: Sequence[Path]) -> Trial:
    return Trial([part for path in paths for part in parts_of(path)], json.dumps(["a pair", astuple(spec)]))


def _loaded(spec: PairSpec, heart: Heart) -> Pair | None:
    models, paths = (spec.target, *spec.drafters), _files_of(spec, heart.report)
    text = None if paths is None else _trial(spec, paths).found()
    if paths is None or text is None:
        return None
    found = json.loads(text)
    memory.place([memory.Estimate(**need) for need in found["needs"]], "cpu")
    files = [GgufFile(path) for path in paths]
    tokenizer = PromptTokenizer(tokenizer_of(files[0].header), spec.target.name)
    loaded = []
    for index, (model, file, written) in enumerate(zip(models, files, found["models"], strict=True)):
        heart.report(Progress(f"Loading {model.name}", (index + 0.1) / len(models)))
        lean = _lean(model, file, written, heart)
        heart.report(Progress(f"Trying {model.name}", (index + 0.9) / len(models)))
        wake(lean)
        loaded.append(as_asked(model, lean))
    heart.report(Progress("Ready", 1.0))
    target, *drafters = loaded
    masks = [None if ids is None else _mask(ids, target.vocab_size) for ids in found["masks"]]
    return Pair(
        target=target,
        drafters=tuple(LoadedDrafter(*each) for each in zip(drafters, masks, strict=True)),
        tokenizer=tokenizer,
        end_ids=frozenset(found["ends"]),
        info=_info(found["info"]),
    )


def _lean(model: ModelSpec, file: GgufFile, written: dict[str, Any], heart: Heart) -> LeanModel:
    with between_compilations(lambda: heart.beat_at(f"First-time compiling: {model.name} (up to a minute)")):
        from specdec_tui.backends.lean.model import LeanModel
        from specdec_tui.backends.lean.weights import PACKED, of_file

        file.warm(heart.report)
        decoder = _decoder(written["decoder"])
        weights = of_file(file, decoder, heart.beat)
        return LeanModel(cache(partial(_shell, file)), decoder, weights, PACKED, written["context_length"])


def _shell(file: GgufFile) -> PreTrainedModel:
    """transformers' model of a file, made when somebody asks for it: that takes seconds."""
    # Before `quiet`, which silences what is there.
    from specdec_tui.backends.description import choose_no_code
    from specdec_tui.backends.gguf.config import config_of
    from specdec_tui.backends.packed_load import shell_of

    with quiet():
        config = config_of(file)
        choose_no_code(config)
        return shell_of(config)


def _mask(excluded: Sequence[int], vocab_size: int) -> torch.Tensor:
    mask = torch.ones(vocab_size, dtype=torch.bool)
    mask[list(excluded)] = False
    return mask


def _written(model: LeanModel) -> dict[str, Any]:
    decoder = model.decoder
    rotations = [{"frequencies": each.frequencies.tolist(), "scale": each.scale} for each in decoder.rotations]
    layers = [asdict(layer) for layer in decoder.layers]
    plain = asdict(replace(decoder, rotations=(), layers=()))
    parts = {"rotations": rotations, "layers": layers}
    return {"decoder": plain | parts, "context_length": model.context_length}


def _decoder(written: dict[str, Any]) -> Decoder:
    rotations = [
        Rotation(torch.tensor(each["frequencies"], dtype=torch.float32), each["scale"]) for each in written["rotations"]
    ]
    layers = [Layer(**layer) for layer in written["layers"]]
    parts = {
        "family": family_from(written["family"]),
        "rotations": tuple(rotations),
        "layers": tuple(layers),
        "biases": tuple(written["biases"]),
    }
    return Decoder(**written | parts)


def _info(written: dict[str, Any]) -> PairInfo:
    def model(fields: dict[str, Any]) -> ModelInfo:
        parts: dict[str, Any] = {name: tuple(v) if isinstance(v, list) else v for name, v in fields.items()}
        return ModelInfo(**parts)

    return PairInfo(
        model(written["target"]),
        tuple(map(model, written["drafters"])),
        written["chat_template"],
        tuple(written["notes"]),
    )
