"""A GGUF file whose weights are mapped: what happens to it while it is in use."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch
from tiny_gguf import KIND, write_tiny_gguf

from specdec_tui.backends.errors import describe_error
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.gguf.header import GgufHeader
from specdec_tui.backends.gguf.parts import header_of
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.pair import LoadError, Progress
from specdec_tui.backends.small_files import FileProblem
from specdec_tui.settings import ModelChoice


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_tiny_gguf(tmp_path / "tiny.gguf", kinds={"": KIND.Q8_0})
    return tmp_path / "tiny.gguf"


def load(file: Path) -> LeanModel:
    model = load_pair(ModelChoice(target=str(file), device="cpu"), lambda step: None).target
    assert isinstance(model, LeanModel) and model.form == "packed"
    return model


def test_a_file_that_becomes_shorter_ends_the_next_pass_in_one_line(file: Path) -> None:
    model = load(file)
    context = model.open()
    context.extend([1, 2, 3], 1)
    os.truncate(file, 4096)
    for use in (
        lambda: context.extend([4], 1),
        lambda: list(model.reference([1, 2], [3])),
        lambda: model.in_form("expanded"),
    ):
        with pytest.raises(LoadError) as caught:
            use()
        assert describe_error(caught.value) == (
            f"{file} has become shorter while it was in use: load the models again."
        )
    assert context.length == 3


def test_a_file_that_is_written_to_in_its_place_ends_the_next_pass_in_one_line(file: Path) -> None:
    """Its weights would be others from one pass to the next, and the text nobody's."""
    model = load(file)
    context = model.open()
    context.extend([1, 2, 3], 1)
    with file.open("r+b") as content:
        content.seek(-40, os.SEEK_END)
        content.write(b"\x01")
    with pytest.raises(LoadError) as caught:
        context.extend([4], 1)
    assert str(caught.value) == f"{file} was written to while it was in use: load the models again."


def test_a_file_that_is_cut_off_between_its_parts_being_read_ends_the_load_in_one_line(file: Path) -> None:
    found = GgufFile(file)

    def cut(step: Progress) -> None:
        os.truncate(file, 4096)

    with pytest.raises(LoadError, match="has become shorter while it was in use"):
        found.warm(cut)
    with pytest.raises(LoadError, match="cut off"):
        load(file)


def test_a_file_that_is_cut_off_behind_the_reading_of_its_header_is_a_problem_in_words(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_and_cut(path: Path) -> GgufHeader:
        header = header_of(path)
        os.truncate(path, 4096)
        return header

    monkeypatch.setattr("specdec_tui.backends.gguf.files.header_of", read_and_cut)
    with pytest.raises(FileProblem, match="became shorter while it was read"):
        GgufFile(file)


@pytest.mark.parametrize(
    "step",
    [
        "description.header_of",
        "description.GgufFile",
        "packed_load.GgufFile",
        "hub.header_of",
        "hub.contents_of",
        "loading.asked_by",
    ],
)
def test_a_file_that_is_cut_off_in_a_load_is_named(file: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Before any of the times that a load reads it."""
    cut = cuts(file, monkeypatch, step)
    with pytest.raises(LoadError) as caught:
        load(file)
    assert cut and str(caught.value).startswith(f"{file} is cut off (")


def test_a_target_that_is_cut_off_while_its_drafter_is_read_is_named(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = file.with_name("drafter.gguf")
    drafter.write_bytes(file.read_bytes())
    cut = cuts(file, monkeypatch, "description.check_tensors", behind=1)
    with pytest.raises(LoadError) as caught:
        load_pair(ModelChoice(target=str(file), drafter=(str(drafter),), device="cpu"), lambda step: None)
    assert cut and str(caught.value).startswith(f"{file} is cut off (")


def cuts(file: Path, monkeypatch: pytest.MonkeyPatch, step: str, behind: int = 0) -> list[str]:
    """Have the file cut off when a function is called, but for the first `behind` times; what was called then."""
    name = f"specdec_tui.backends.{step}"
    *owner, attribute = name.split(".")
    real = getattr(resolve_name(".".join(owner)), attribute)
    calls, found = [0], []

    def cut_and_call(*given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] > behind and not found:
            os.truncate(file, file.stat().st_size - 1000)
            found.append(step)
        return real(*given, **named)

    monkeypatch.setattr(name, cut_and_call)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_a_mapped_file_is_closed_with_its_last_user(file: Path) -> None:
    def still_open() -> int:
        gc.collect()
        return sum(os.path.realpath(f"/proc/self/fd/{name}") == str(file) for name in os.listdir("/proc/self/fd"))

    found = GgufFile(file)
    assert still_open() > 0
    del found
    assert still_open() == 0


@pytest.mark.large
@pytest.mark.skipif(sys.platform != "linux", reason="signals of Linux")
def test_without_looking_at_its_length_the_process_would_be_killed(file: Path) -> None:
    code = (
        "import os, sys\n"
        "from specdec_tui.backends.gguf.files import GgufFile\n"
        "from specdec_tui.backends.loading import load_pair\n"
        "from specdec_tui.settings import ModelChoice\n"
        "model = load_pair(ModelChoice(target=sys.argv[1], device='cpu'), lambda step: None).target\n"
        "GgufFile.check = lambda self: None\n"
        "os.truncate(sys.argv[1], 4096)\n"
        "model.open().extend([1, 2, 3], 1)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True)
    assert done.returncode == -signal.SIGBUS


def test_another_file_of_its_name_leaves_a_loaded_model_as_it_is(file: Path) -> None:
    model = load(file)
    before = model.open().extend([1, 2, 3], 3)
    write_tiny_gguf(file.with_name("other.gguf"), kinds={"": KIND.Q8_0}, seed=4)
    os.replace(file.with_name("other.gguf"), file)
    assert torch.equal(model.open().extend([1, 2, 3], 3), before)
    assert not torch.equal(load(file).open().extend([1, 2, 3], 3), before)
    os.remove(file)
    assert torch.equal(model.open().extend([1, 2, 3], 3), before)


def test_scales_that_are_no_numbers_are_refused_in_one_line(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-34:-32] = b"\x00\x7e"  # of the last block of the last tensor
    file.write_bytes(content)
    with pytest.raises(LoadError, match="its scores are not finite numbers") as caught:
        load(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [KIND.Q2_K, KIND.IQ4_NL])
def test_a_format_that_has_no_products_is_expanded_and_told(kind: KIND, tmp_path: Path) -> None:
    file = tmp_path / "other.gguf"
    write_tiny_gguf(file, kinds={".*ffn_down": kind, "": KIND.Q8_0})
    pair = load_pair(ModelChoice(target=str(file), device="cpu"), lambda step: None)
    assert isinstance(pair.target, LeanModel) and pair.target.form == "packed"
    told = f"{kind.name} weights are held expanded: no products over them are made here"
    assert any(told in notice for notice in pair.info.target.notices), pair.info.target.notices
