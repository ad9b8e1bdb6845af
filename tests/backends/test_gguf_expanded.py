from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from tiny_gguf import KIND, write_tiny_gguf
from transformers import AutoModelForCausalLM

from specdec_tui.backends.gguf import expanded
from specdec_tui.backends.gguf.config import config_of
from specdec_tui.backends.gguf.files import GgufFile


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("architecture", expanded.NAMED)
def test_weights_have_the_names_and_values_that_transformers_gives_them(
    tmp_path: Path, architecture: str, tied: bool
) -> None:
    kinds = {"blk.*ffn": KIND.Q6_K, "blk.*attn_k": KIND.F16}
    meant = write_tiny_gguf(tmp_path / "t.gguf", architecture=architecture, tied=tied, kinds=kinds)
    file = GgufFile(tmp_path / "t.gguf")
    state = expanded.state_of(file, config_of(file), torch.float32)
    np.testing.assert_array_equal(state["model.embed_tokens.weight"].numpy(), meant["token_embd.weight"])
    theirs = AutoModelForCausalLM.from_pretrained(
        tmp_path,
        gguf_file="t.gguf",
        dtype=torch.float32,
        config=config_of(file),
        quantization_config=transformers.GgufConfig(dequantize=True),
    ).state_dict()
    if tied:
        del theirs["lm_head.weight"]
    assert state.keys() == theirs.keys()
    assert not [name for name, weight in theirs.items() if not torch.equal(state[name], weight)]


def test_weights_are_made_in_the_dtype_that_is_asked_for(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "t.gguf")
    file = GgufFile(tmp_path / "t.gguf")
    exact, near = (expanded.state_of(file, config_of(file), dtype) for dtype in (torch.float32, torch.bfloat16))
    assert all(torch.equal(weight, exact[name].bfloat16()) for name, weight in near.items())
