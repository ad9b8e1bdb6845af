"""Models of GGUF files whose matrices stay packed on a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch
from tiny_gguf import KIND, Sizes, write_tiny_gguf
from transformers import AutoModelForCausalLM

GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from specdec_tui.backends.gguf import expanded  # noqa: E402
from specdec_tui.backends.gguf.config import config_of  # noqa: E402
from specdec_tui.backends.gguf.files import GgufFile  # noqa: E402
from specdec_tui.backends.gpu.packed import gguf_model  # noqa: E402
from specdec_tui.backends.gpu.packed.linear import PackedLinear, whole_of  # noqa: E402

DEVICE = torch.device("cuda" if GPU else "cpu")
HALF = torch.float16
ONE = Sizes(layers=1)
KINDS = {
    "blk.*attn_v": KIND.Q6_K,
    "blk.*ffn_down": KIND.Q5_K,
    "blk.*ffn_up": KIND.F16,
    "token": KIND.Q6_K,
    "": KIND.Q4_K,
}
SLOW = [] if GPU else [pytest.mark.large]


@pytest.mark.parametrize(
    ("architecture", "tied"),
    [("llama", True), pytest.param("qwen2", False, marks=SLOW), pytest.param("qwen3", True, marks=SLOW)],
)
def test_a_packed_model_has_the_logits_of_its_expanded_weights(tmp_path: Path, architecture: str, tied: bool) -> None:
    path = tmp_path / "t.gguf"
    write_tiny_gguf(path, architecture=architecture, tied=tied, kinds=KINDS, sizes=ONE)
    file = GgufFile(path)
    assert gguf_model.reads(file)
    model = gguf_model.load(file, config_of(file), HALF, DEVICE)
    layer = model.model.layers[0]
    attention = [layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj]
    assert (whole := whole_of(attention)) is not None and whole.form == "int8"  # the kinds of both
    assert not isinstance(layer.mlp.gate_proj, PackedLinear)  # beside numbers
    assert isinstance(layer.mlp.down_proj, PackedLinear) and isinstance(model.lm_head, PackedLinear)
    held = sum(buffer.nbytes for name, buffer in model.named_buffers() if "packed_" in name)
    held += sum(parameter.nbytes for parameter in model.parameters())
    assert held == pytest.approx(gguf_model.bytes_on_a_gpu(file, HALF), rel=0.05)

    plain = AutoModelForCausalLM.from_config(config_of(file), dtype=torch.float32).eval()
    plain.load_state_dict(expanded.state_of(file, config_of(file), torch.float32), strict=False)
    plain.tie_weights()
    ids = torch.arange(20)[None] * 7 % 300
    with torch.inference_mode():
        expected, ours = plain(ids).logits, model(ids.to(DEVICE)).logits.cpu().float()
    assert (ours - expected).abs().max() <= 0.01 * expected.abs().max()


def test_kernels_that_give_other_products_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_tiny_gguf(tmp_path / "t.gguf", kinds={"": KIND.Q4_K}, sizes=ONE)
    file = GgufFile(tmp_path / "t.gguf")
    monkeypatch.setattr(PackedLinear, "forward", lambda layer, x: x.new_zeros(len(x), layer.out_features))
    with pytest.raises(ValueError, match="do not give its products"):
        gguf_model.load(file, config_of(file), HALF, DEVICE)


def test_files_without_a_matrix_to_be_packed_are_expanded(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "t.gguf", kinds={"": KIND.F16}, sizes=ONE)
    assert not gguf_model.reads(GgufFile(tmp_path / "t.gguf"))
    write_tiny_gguf(tmp_path / "g.gguf", architecture="gemma2", kinds={"": KIND.Q8_0}, sizes=ONE)
    assert not gguf_model.reads(GgufFile(tmp_path / "g.gguf"))
