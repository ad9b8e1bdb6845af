from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tiny_gguf import write_tiny_gguf

from specdec_tui.backends import agreed, loading
from specdec_tui.backends.agreed import Trial
from specdec_tui.backends.demo import CACHE_VARIABLE
from specdec_tui.backends.lean import fit
from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.pair import Progress
from specdec_tui.settings import ModelChoice


def silent(progress: Progress) -> None:
    """Nobody watches."""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that agreed, and a cache of its own."""
    monkeypatch.setattr(agreed, "_FOLDER", "agreed")
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    assert not Trial([path], "packed").is_known()
    Trial([path], "packed").keep()
    assert Trial([path], "packed").is_known()
    return path


def stamp(file: Path) -> Path:
    (found,) = (file.parent / "cache" / "agreed").iterdir()
    return found


def replaced(file: Path) -> None:
    """By a file of its size and time of writing, as `cp -p` and archives leave them."""
    time.sleep(0.02)  # the kernel's own clock goes in steps
    status = file.stat()
    file.with_name("new").write_bytes(b"WEIGHTS")
    os.replace(file.with_name("new"), file)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


CHANGES: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "its size": lambda file, patch: file.write_bytes(b"more weights"),
    "its time": lambda file, patch: os.utime(file, (1, 1)),
    "nothing but its content": lambda file, patch: replaced(file),
    "the package": lambda file, patch: patch.setattr(agreed, "version", lambda name: "9.9"),
    "the processor": lambda file, patch: patch.setattr(agreed, "_processor", lambda: ["another"]),
    "our code": lambda file, patch: patch.setattr(agreed, "_OWN_CODE", file.parent),
    "the stamp, cut off": lambda file, patch: stamp(file).write_bytes(stamp(file).read_bytes()[:-9]),
    "the stamp, no text": lambda file, patch: stamp(file).write_bytes(b"\xff\xfe\x00"),
    "the stamp, gone": lambda file, patch: stamp(file).unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_changed_is_tried_again(file: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "lean").mkdir()
    (file.parent / "gguf").mkdir()
    CHANGES[change](file, monkeypatch)
    assert not Trial([file], "packed").is_known()


def test_of_a_file_that_changes_meanwhile_nothing_is_kept(file: Path) -> None:
    os.utime(file, (1, 1))
    trial = Trial([file], "packed")
    os.utime(file, (2, 2))
    trial.keep()
    assert not trial.is_known() and not Trial([file], "packed").is_known()


def test_another_form_and_another_part_are_tried_by_themselves(file: Path) -> None:
    other = file.with_name("second.gguf")
    other.write_bytes(b"weights")
    assert not Trial([file], "torch.float32").is_known()
    assert not Trial([other], "packed").is_known() and not Trial([file, other], "packed").is_known()


def test_where_nothing_can_be_kept_a_file_is_tried_each_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file.parent / "in the way").touch()
    for place in (str(file.parent / "in the way" / "below"), "~nosuch/cache"):
        monkeypatch.setenv(CACHE_VARIABLE, place)
        Trial([file], "packed").keep()
        assert not Trial([file], "packed").is_known()
    Trial([file.with_name("gone.gguf")], "packed").keep()
    assert not Trial([file.with_name("gone.gguf")], "packed").is_known()


def test_the_oldest_stamps_go(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreed, "_MOST_STAMPS", 3)
    for number in range(5):
        os.utime(file, (number, number))
        Trial([file], "packed").keep()
    assert len(list((file.parent / "cache" / "agreed").iterdir())) == 3
    assert Trial([file], "packed").is_known()


@pytest.mark.parametrize("kind", ["packed", "safetensors"])
def test_a_second_load_tries_nothing_until_the_file_changes(
    file: Path, kind: str, save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model("tiny")
    source = folder
    if kind == "packed":
        source = file.with_name("tiny.gguf")
        write_tiny_gguf(source, folder)
    tried = []
    plain = fit.agrees
    for module in (fit, loading):
        monkeypatch.setattr(module, "agrees", lambda *given: tried.append(1) or plain(*given))
    changed = source if kind == "packed" else source / "model.safetensors"
    texts = []
    for _ in range(2):
        pair = load_pair(ModelChoice(target=str(source), drafter=("none",), device="cpu"), silent)
        texts.append(pair.target.open().extend([3, 4, 5], 3))
    assert len(tried) == 1 and bool((texts[0] == texts[1]).all())
    os.utime(changed, (5, 5))
    load_pair(ModelChoice(target=str(source), drafter=("none",), device="cpu"), silent)
    assert len(tried) == 2


def test_what_did_not_agree_is_tried_each_time(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = file.with_name("tiny.gguf")
    write_tiny_gguf(source)
    tried = []
    monkeypatch.setattr(fit, "agrees", lambda *given: bool(tried.append(1)))
    for _ in range(2):
        load_pair(ModelChoice(target=str(source), drafter=("none",), device="cpu"), silent)
    assert len(tried) == 2
