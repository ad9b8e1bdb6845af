"""The health check can fail: every line of it is given the fault that it is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from specdec_tui import cli, doctor
from specdec_tui.backends.demo import drafter_file
from specdec_tui.backends.lean.model import LeanContext

PAIR = {"TARGET": str(drafter_file()), "DRAFTER": str(drafter_file()), "DEVICE": "cpu"}


@pytest.fixture(autouse=True)
def _own_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path / "data"))
    for name, value in PAIR.items():
        monkeypatch.setenv(f"SPECDEC_TUI_{name}", value)


def health(capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, str]]:
    """The exit status, and the marks of the lines by their names."""
    status = cli.main(["doctor"])
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if line[:1] in "✓!✗"]
    return status, {words[1]: words[0] for words in lines if len(words) > 1}


def test_a_whole_installation_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    status, marks = health(capsys)
    assert status == 0 and "✗" not in marks.values()
    assert {"torch", "config", "memory", "pair", "target", "speculative"} <= marks.keys()


@pytest.mark.parametrize(("package", "status", "mark"), [("transformers", 1, "✗"), ("bitsandbytes", 0, "!")])
def test_a_package_that_is_missing_is_told(
    package: str, status: int, mark: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = doctor.installed_versions()
    monkeypatch.setattr(doctor, "installed_versions", lambda: versions | {package: None})
    monkeypatch.setattr(doctor, "_pair_checks", lambda *given: [])
    found, marks = health(capsys)
    assert (found, marks[package]) == (status, mark)


def test_a_damaged_config_file_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text("gama = 3\n")
    monkeypatch.setattr(doctor, "_pair_checks", lambda *given: [])
    status, marks = health(capsys)
    assert (status, marks["config"]) == (1, "✗")


def test_every_wrong_key_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.toml").write_text('[keymap]\nfly = "f5"\nview = "nokey"\n')
    monkeypatch.setattr(doctor, "_pair_checks", lambda *given: [])
    assert cli.main(["doctor"]) == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "keymap" in line]
    assert len(lines) == 2 and "fly" in lines[0] and "nokey" in lines[1]
    assert all(line.startswith("✗") for line in lines)


@pytest.mark.parametrize("error", [ImportError("no module"), OSError("libtorch.so: cannot open shared object file")])
def test_a_torch_that_does_not_import_is_told(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails() -> dict[str, Any]:
        raise error

    monkeypatch.setattr(doctor, "describe_environment", fails)
    status, marks = health(capsys)
    assert (status, marks["environment"]) == (1, "✗") and "pair" not in marks


def test_a_pair_that_does_not_load_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SPECDEC_TUI_TARGET", str(tmp_path))
    status, marks = health(capsys)
    assert (status, marks["pair"]) == (1, "✗")


def test_a_pass_that_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    extend = LeanContext.extend

    def fails(self: LeanContext, ids: list[int], keep: int) -> torch.Tensor:
        if self.length > 45:  # beyond what is tried while a model loads
            raise RuntimeError("a kernel failed")
        return extend(self, ids, keep)

    monkeypatch.setattr(LeanContext, "extend", fails)
    status, marks = health(capsys)
    assert (status, marks["pair"], marks["decoding"]) == (1, "✓", "✗")


def test_a_strategy_that_writes_another_text_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    extend = LeanContext.extend

    def turned_round(self: LeanContext, ids: list[int], keep: int) -> torch.Tensor:
        logits = extend(self, ids, keep)
        return -logits if keep > 1 and self.length > 45 else logits  # beyond what is tried while a model loads

    monkeypatch.setattr(LeanContext, "extend", turned_round)
    status, marks = health(capsys)
    assert (status, marks["pair"], marks["target"], marks["speculative"]) == (1, "✓", "✓", "✗")
