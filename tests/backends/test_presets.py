from __future__ import annotations

import subprocess
import sys

import pytest

from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.presets import DEMO_DRAFTER, DEMO_TARGET, PRESETS, resolve
from specdec_tui.settings import PRESET_NAMES, ModelChoice


def test_the_table_has_the_presets_that_the_settings_name() -> None:
    assert tuple(PRESETS) == PRESET_NAMES


def test_the_default_is_the_demo_pair() -> None:
    pair = resolve(ModelChoice())
    assert [model.source for model in (pair.target, *pair.drafters)] == [DEMO_TARGET, DEMO_DRAFTER]
    assert pair.target.quantization == "none" and not pair.notes


def test_a_preset_brings_its_quantization_unless_another_is_given() -> None:
    assert resolve(ModelChoice(preset="llama3.2")).target.quantization == "int8"
    assert resolve(ModelChoice(preset="llama3.2", quantize="none")).target.quantization == "none"


def test_the_quantization_of_one_model_wins_over_that_of_both() -> None:
    pair = resolve(ModelChoice(preset="llama3.2", quantize="int4", drafter_quantize="none"))
    assert (pair.target.quantization, pair.drafters[0].quantization) == ("int4", "none")


def test_another_target_without_a_drafter_runs_without_one_and_says_so() -> None:
    pair = resolve(ModelChoice(target="my/model"))
    assert pair.target.source == "my/model" and not pair.drafters
    assert "--drafter" in pair.notes[0]


def test_another_target_does_not_inherit_the_presets_quantization() -> None:
    assert resolve(ModelChoice(preset="llama3.2", target="my/model")).target.quantization == "none"


@pytest.mark.parametrize("drafter", ["none", "None"])
def test_the_drafter_can_be_left_out_on_purpose(drafter: str) -> None:
    pair = resolve(ModelChoice(drafter=drafter))
    assert not pair.drafters and not pair.notes


def test_another_drafter_takes_the_place_of_the_presets() -> None:
    pair = resolve(ModelChoice(preset="gpt2", drafter="my/small", dtype="float16", device="cpu"))
    assert pair.target.source.endswith("gpt2-xl") and len(pair.drafters) == 1
    assert (pair.drafters[0].source, pair.drafters[0].dtype, pair.drafters[0].device) == ("my/small", "float16", "cpu")


def test_a_pair_needs_a_target() -> None:
    with pytest.raises(LoadError, match="target"):
        resolve(ModelChoice(target="none"))


def test_presets_and_cached_models_are_listed_without_importing_torch() -> None:
    code = (
        "import sys; import specdec_tui.backends.presets; from specdec_tui.backends.hub_cache import cached_models; "
        "cached_models(); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
