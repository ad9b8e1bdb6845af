"""The built-in pairs, and how a choice becomes two model specifications. No torch here."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specdec_tui.backends.pair import LoadError
from specdec_tui.settings import ModelChoice

DEMO_TARGET = "demo-target"
DEMO_DRAFTER = "demo-drafter"
"""Sources that are not on a hub: the built-in pair (`backends.demo` finds their folders)."""

NO_DRAFTER = "none"


@dataclass(frozen=True, slots=True)
class Preset:
    """A pair known to work together; `quantization` is what it is meant to be loaded with.

    `parameters` of target and drafter, from their model cards: what is known before anything is fetched.
    """

    name: str
    target: str
    drafter: str
    quantization: str
    parameters: tuple[float, float]
    help: str


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """One model to load: `source` is a hub id, a folder, a GGUF file or a built-in name.

    `weights`: the form that is asked for, one of `settings.WEIGHT_FORMS` or auto. `by_preset`: nobody asked for its
    quantization, a preset has it.
    """

    source: str
    dtype: str
    device: str
    quantization: str
    weights: str = "auto"
    by_preset: bool = False

    @property
    def name(self) -> str:
        """What to call it on the screen."""
        return {DEMO_TARGET: "SmolLM2-135M-Instruct (demo)", DEMO_DRAFTER: "demo drafter"}.get(self.source, self.source)


@dataclass(frozen=True, slots=True)
class PairSpec:
    """What to load; no drafter means that only strategies without one can run."""

    target: ModelSpec
    drafters: tuple[ModelSpec, ...] = ()
    notes: tuple[str, ...] = ()


PRESETS = {
    preset.name: preset
    for preset in (
        Preset(
            "demo",
            DEMO_TARGET,
            DEMO_DRAFTER,
            "none",
            (134.5e6, 16.0e6),
            "built in: SmolLM2 135M Instruct and a tiny drafter, on a CPU",
        ),
        Preset(
            "llama3.2",
            "meta-llama/Llama-3.2-3B-Instruct",
            "meta-llama/Llama-3.2-1B-Instruct",
            "int8",
            (3.21e9, 1.24e9),
            "Llama 3.2 3B and 1B Instruct in int8 (licence to accept)",
        ),
        Preset(
            "gpt2",
            "openai-community/gpt2-xl",
            "openai-community/gpt2",
            "none",
            (1.56e9, 124e6),
            "GPT-2 XL and GPT-2, no chat",
        ),
        Preset(
            "qwen2.5",
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-0.5B-Instruct",
            "none",
            (7.62e9, 494e6),
            "Qwen2.5 7B and 0.5B Instruct (vocabulary sizes differ)",
        ),
        Preset(
            "smollm2",
            "HuggingFaceTB/SmolLM2-1.7B-Instruct",
            "HuggingFaceTB/SmolLM2-135M-Instruct",
            "none",
            (1.71e9, 134.5e6),
            "SmolLM2 1.7B and 135M Instruct",
        ),
        Preset(
            "flan-t5",
            "google/flan-t5-xl",
            "google/flan-t5-small",
            "none",
            (2.85e9, 77e6),
            "Flan-T5 XL and Small (encoder-decoder, no chat)",
        ),
    )
}


def hint(source: str) -> str:
    """A sentence to put behind the refusal of a model that was called by the name of a preset; else nothing."""
    preset = PRESETS.get("demo" if "demo" in source.lower() and "/" not in source else source.lower())
    if preset is None:
        return ""
    return f" The preset {preset.name} is made of target {preset.target} and drafter {preset.drafter}."


def resolve(choice: ModelChoice) -> PairSpec:
    """The models of a choice.

    A target or drafters that were named take the place of the preset's. A preset's drafter fits
    the preset's target only: another target runs without a drafter unless one is named too, and
    the same holds for the preset's quantization. The quantization of one model wins over that of
    both, which wins over the preset's. A form of weights that takes a GGUF file is demanded of the target alone:
    drafters that are one are packed then, others stay as they are. LoadError when there is no target.
    """
    preset = PRESETS[choice.preset]
    notes: list[str] = []
    if choice.target.lower() == NO_DRAFTER:
        raise LoadError("target: 'none' is not a model: every strategy needs a target")
    target = choice.target or preset.target
    drafters = choice.drafter or (preset.drafter,)
    if choice.target and choice.target != preset.target and not choice.drafter:
        drafters = ()
        notes.append("No drafter: a target was given without one. Name one with --drafter for speculative decoding.")

    def spec(source: str, own_quantization: str, presets_source: str) -> ModelSpec:
        default = preset.quantization if source == presets_source else "none"
        asked = own_quantization or choice.quantize
        return ModelSpec(
            source, choice.dtype, choice.device, asked or default, by_preset=not asked and default != "none"
        )

    of_drafters = "expanded" if choice.weights == "expanded" else "auto"
    return PairSpec(
        replace(spec(target, choice.target_quantize, preset.target), weights=choice.weights),
        tuple(
            replace(spec(drafter, choice.drafter_quantize, preset.drafter), weights=of_drafters)
            for drafter in drafters
            if drafter.lower() != NO_DRAFTER
        ),
        tuple(notes),
    )
