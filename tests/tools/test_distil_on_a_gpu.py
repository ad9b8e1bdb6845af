"""What only a GPU runs: the attention kernel, the captured step, the compiled loss."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from distil.attention import fused_attention, plain_attention
from distil.decoder import compiled
from distil.generate import MODES, Author, GenerationSettings
from distil.llama import Llama, Shape, from_state, hidden_states
from distil.loss import LossWeights, chunk_gradient, fused_head_loss
from distil.openings import make_openings
from distil.shards import unpack_ids
from distil.student import Student, hugging_face_state

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


def half_model() -> Llama:
    shape = Shape(192, 2, 3, 1, 64, 256, 49152, 1e5, 1e-5)
    start = torch.randn(49152, 192, generator=torch.Generator().manual_seed(0))
    state = hugging_face_state(Student(shape, 64, 0, start))
    return from_state(shape, state, torch.device("cuda"), torch.bfloat16)


@pytest.mark.parametrize("position", [0, 63, 64, 150])
def test_the_attention_kernel_equals_torchs(position: int) -> None:
    torch.manual_seed(position)
    q = torch.randn(5, 9, 64, device="cuda", dtype=torch.bfloat16)
    keys, values = (torch.randn(5, 3, 200, 64, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    found = fused_attention(q, keys, values, torch.tensor([position], device="cuda"))
    expected = plain_attention(q.float(), keys.float(), values.float(), position + 1)
    torch.testing.assert_close(found.float(), expected, atol=2e-2, rtol=2e-2)


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_stores_the_probabilities_of_a_full_forward(mode: str, tokenizer: Any, tmp_path: Path) -> None:
    model = half_model()
    settings = GenerationSettings(batch=16, length=96, k=8)
    author = Author(model, settings, 2, mode)
    openings = make_openings(tokenizer, 16, "any", longest=96)
    rows, again = author.write(openings, 1), author.write(openings, 1)
    assert torch.equal(rows.tokens, again.tokens)
    tokens = unpack_ids(rows.tokens).cuda()
    logits = (hidden_states(model, tokens) @ model.head.t()).float()
    expected = logits.softmax(-1).gather(2, unpack_ids(rows.ids).cuda())
    torch.testing.assert_close(rows.probabilities.float().cuda(), expected, atol=2e-2, rtol=0.2)


def test_the_compiled_loss_equals_the_plain_one() -> None:
    torch.manual_seed(0)
    hidden = torch.randn(256, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    head = (torch.randn(4096, 64, device="cuda") * 0.2).requires_grad_()
    p, ids = (torch.randn(256, 4096, device="cuda") * 3).softmax(1).topk(48)
    weights = torch.full((256,), 1 / 256, device="cuda")
    outcomes = []
    for function in (chunk_gradient, compiled(chunk_gradient)):
        loss, _ = fused_head_loss(hidden, head, ids, p.half(), weights, LossWeights(), 128, function)
        outcomes.append((loss, *torch.autograd.grad(loss, (hidden, head))))
    torch.testing.assert_close(outcomes[0][0], outcomes[1][0], atol=1e-3, rtol=1e-3)
    for plain, fast in zip(outcomes[0][1:], outcomes[1][1:], strict=True):
        assert float((plain - fast).norm() / plain.norm()) < 0.03
