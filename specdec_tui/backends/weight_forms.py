"""The form that a model's weights are held in: what the setting `weights` asks for, and what cannot be. No torch here.

Packed as in its GGUF file, expanded to numbers, or packed with activations in 8 bits. The first two give the same sums
in the same order, so the same text bit for bit; the third is another model by a hair.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from specdec_tui.backends.model import WeightForms
from specdec_tui.backends.pair import LoadError, ModelInfo
from specdec_tui.backends.presets import ModelSpec

if TYPE_CHECKING:
    from specdec_tui.backends.description import ModelDescription
    from specdec_tui.backends.loading import Pair

INT8 = "packed-int8"
_OF_GGUF = ("packed", INT8)
_OF_PACKED = "float32"
_OTHERWISE = "give weights expanded, or auto"
_Model = TypeVar("_Model")


def form_of(model: object) -> str:
    """The form that a model's weights have; empty where there is no choice."""
    return model.form if isinstance(model, WeightForms) and len(model.forms) > 1 else ""


def difference_told(form: str) -> str:
    """What a reader of a text must know of the form that it was written in; empty where that is nothing."""
    if form != INT8:
        return ""
    own = "another model by a hair, checked against itself"
    return f"weights {INT8}: {own}; this text may differ from that of packed or expanded weights"


def check_asked(model: ModelDescription, device: str, dtype: str) -> None:
    """LoadError where a model's files, its device or dtype rule out the form that is asked for.

    Before weights are read. `dtype`: the name of what is computed in.
    """
    name, asked = model.spec.name, model.spec.weights
    if asked not in _OF_GGUF:
        return
    if model.location.gguf_file is None:
        raise LoadError(f"{name}: weights {asked} takes a GGUF file, and this is none: {_OTHERWISE}.")
    if device != "cpu":
        where = f"is for the CPU, and this goes to {device}"
        raise LoadError(f"{name}: weights {asked} {where}: {_OTHERWISE}, or device cpu.")
    if dtype != _OF_PACKED:
        other = f"are as their file has them and computed with in {_OF_PACKED}, which dtype {dtype} is not"
        raise LoadError(f"{name}: weights {asked} {other}: give dtype {_OF_PACKED} or auto, or weights expanded.")


def as_asked(spec: ModelSpec, model: _Model) -> _Model:
    """A loaded model in the form that is asked for. LoadError where it cannot be held so."""
    return model if spec.weights == "auto" else in_form(spec.name, model, spec.weights)


def in_form(name: str, model: _Model, form: str) -> _Model:
    """A loaded model in another form of its weights, or itself where it has that. LoadError where it cannot be."""
    if isinstance(model, WeightForms):
        if form == model.form:
            return model
        if form in model.forms:
            return model.in_form(form)
        raise LoadError(f"{name}: weights {form}: it can be held in {' or '.join(model.forms)}.")
    if form in _OF_GGUF:
        raise LoadError(
            f"{name}: weights {form} is for the fast CPU pass, which does not run this model: {_OTHERWISE}."
        )
    return model


def with_form(info: ModelInfo, model: object) -> ModelInfo:
    """What is told of a model, with the form of its weights."""
    if not isinstance(model, WeightForms) or len(model.forms) < 2:
        return info
    return replace(info, weights=model.form, weight_forms=tuple(model.forms))


def pair_in_form(pair: Pair, form: str) -> Pair:
    """A pair whose target has another form of its weights, the rest as it is; itself where it has that.

    LoadError where the target cannot be held so, or both forms of it do not fit into memory together.
    """
    told = pair.info.target
    if form == "expanded" and form_of(pair.target) not in ("", form):
        _check_room(told)
    if (target := in_form(told.name, pair.target, form)) is pair.target:
        return pair
    assert isinstance(target, WeightForms)
    now = replace(with_form(told, target), memory_bytes=target.memory_bytes, held_dtype="")
    return replace(pair, target=target, info=replace(pair.info, target=now))


def _check_room(model: ModelInfo) -> None:
    """LoadError where a model's weights as float32, beside what is loaded, do not fit into memory."""
    from specdec_tui.backends.memory import available_bytes, gigabytes

    wanted, free = 4 * model.parameters, available_bytes("cpu")
    if wanted > free:
        raise LoadError(
            f"{model.name}: expanded its weights take {gigabytes(wanted)} more, and {gigabytes(free)} are free: "
            "load the pair with weights expanded to run it in that form alone."
        )
