"""Load a GGUF file for the CPU pass without expanding it: its weights stay mapped where they lie on the disk."""

from __future__ import annotations

from copy import deepcopy
from functools import cached_property
from typing import TYPE_CHECKING

import accelerate
import torch
from transformers import PreTrainedConfig, PreTrainedModel

from specdec_tui.backends.agreed import Trial, wake
from specdec_tui.backends.decoder import describe
from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.gguf.config import is_known
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.parts import parts_of
from specdec_tui.backends.lean import fit
from specdec_tui.backends.model_class import class_for
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.quiet import Heart

if TYPE_CHECKING:
    from specdec_tui.backends.lean.model import LeanModel

_TRIAL = 40  # tokens
_TRIED_WEIGHTS = 200_000_000
"""Weights that a trial computes with: all of a small model's, the first layers of a larger one's."""


def shell_of(config: PreTrainedConfig, layers: int | None = None) -> PreTrainedModel:
    """The model of a config, or its first `layers`: code alone, as all of its tensors are on the meta device."""
    config = deepcopy(config)
    if layers is not None:
        config.num_hidden_layers = layers
        if getattr(config, "layer_types", None):
            config.layer_types = config.layer_types[:layers]
    with accelerate.init_empty_weights(include_buffers=True):
        built: PreTrainedModel = class_for(config).from_config(config, dtype=torch.float32)
    return built.eval()


class PackedFile:
    """A model's GGUF file with transformers' code for it, which is given no weights."""

    def __init__(self, model: ModelDescription) -> None:
        self._model = model
        path = model.location.folder / str(model.location.gguf_file)
        self._trial = Trial(parts_of(path), "packed")
        self.file = GgufFile(path)

    @classmethod
    def of(cls, model: ModelDescription, device: str, dtype: torch.dtype) -> PackedFile | None:
        """None for what is loaded by transformers: no GGUF file, another device or dtype, an unknown architecture."""
        if model.location.gguf_file is None or device != "cpu" or dtype is not torch.float32 or fit.why_not():
            return None
        found = cls(model)
        if not is_known(found.file.header) or fit.why_not_lean(describe(found.shell)):
            return None
        return found

    @cached_property
    def shell(self) -> PreTrainedModel:
        return shell_of(self._model.config)

    def bytes_in(self, form: str) -> int | None:
        """What its weights take, as they are packed; None where they are to be expanded, which is as float32."""
        return None if form == "expanded" else sum(tensor.size for tensor in self.file.tensors.values())

    def load(self, heart: Heart) -> tuple[LeanModel, str]:
        """The model, and why it is not to be used where it does not give the logits of transformers' layers."""
        from specdec_tui.backends.lean.model import LeanModel

        name = self._model.spec.name
        self.file.warm(heart.report)
        model = LeanModel.of_file(self.shell, self.file, heart.beat)
        if self._trial.is_known():
            wake(model)
            return model, ""
        small = self._shortened(model)
        ids = [(37 * i + 1) % model.vocab_size for i in range(min(_TRIAL, model.context_length or _TRIAL))]
        try:
            expected = torch.stack(list(small.reference(ids[:1], [*ids[1:], 0])))
        except Exception as error:
            raise LoadError(f"{name}: its weights do not fit its config: {first_line(error)}.") from error
        if not bool(torch.isfinite(expected).all()):
            raise LoadError(
                f"{name}: its scores are not finite numbers (NaN or infinite): its file is damaged, download it again, "
                "or take another model."
            )
        heart.beat()
        if not fit.agrees(small, ids, expected):
            return model, "the fast ones do not give its logits on this machine"
        self._trial.keep()
        return model, ""

    def _shortened(self, model: LeanModel) -> LeanModel:
        """The model, or its first layers."""
        per_layer = sum(matrix.rows * matrix.columns for matrix in model.weights.layers[0].matrices)
        kinds = [(layer.window > 0, layer.rotation) for layer in model.decoder.layers]
        least = max(kinds.index(kind) for kind in set(kinds)) + 1
        count = min(len(kinds), max(2, least, _TRIED_WEIGHTS // per_layer))
        return model.first_layers(shell_of(self._model.config, count)) if count < len(kinds) else model
