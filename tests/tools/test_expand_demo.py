from __future__ import annotations

import sys
from pathlib import Path

import expand_demo
import numpy as np
import pytest
from safetensors.numpy import load_file
from transformers import LlamaForCausalLM

sys.path.append(str(Path(__file__).parents[1] / "backends"))
from tiny_gguf import write_tiny_gguf


def test_the_folder_holds_the_files_weights_for_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meant = write_tiny_gguf(tmp_path / "tiny.gguf", expand_demo.drafter_folder())
    monkeypatch.setattr(expand_demo, "target_file", lambda progress: tmp_path / "tiny.gguf")
    assert expand_demo.main([str(tmp_path / "out")]) == 0
    weights = load_file(tmp_path / "out" / "model.safetensors")
    np.testing.assert_array_equal(weights["model.embed_tokens.weight"], meant["token_embd.weight"])
    loaded = LlamaForCausalLM.from_pretrained(tmp_path / "out")
    assert str(loaded.dtype) == "torch.float32" and loaded.config.eos_token_id == 2
    assert (tmp_path / "out" / "tokenizer.json").is_file()


def test_a_folder_that_is_there_is_not_written_into(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        expand_demo.main([str(tmp_path)])
    assert "is there already" in capsys.readouterr().err
