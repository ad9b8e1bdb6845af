"""The target's own text: the decoding loop, the stored distributions, the conversations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from distil.choosing import GREEDY, KEEP_ALL, choose, noise
from distil.decoder import Decoder, float_logits
from distil.evaluate import answer, read_prompts
from distil.files import Refused, load_tensors
from distil.generate import Author, GenerationSettings, generate
from distil.llama import hidden_states, load_llama
from distil.openings import ANSWER, MIXTURE, RAW, USER, make_openings
from distil.prompts import BEGINNINGS, TEMPLATES, all_turns, normal_form
from distil.shards import pack_ids, shard_files, unpack_ids
from transformers import LlamaForCausalLM

pytestmark = pytest.mark.large
CPU = torch.device("cpu")
SUITES = sorted((Path(__file__).resolve().parents[2] / "specdec_tui" / "benchmark").glob("*.jsonl"))


def test_the_lean_forward_gives_the_logits_of_transformers(target_folder: Path, reference: LlamaForCausalLM) -> None:
    model = load_llama(target_folder, CPU, torch.float32)
    ids = torch.randint(49152, (2, 30), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = reference(ids).logits
    torch.testing.assert_close(hidden_states(model, ids) @ model.head.t(), expected, atol=2e-4, rtol=1e-4)


def test_decoding_a_batch_of_unequal_prompts_equals_greedy_generate(
    target_folder: Path, reference: LlamaForCausalLM
) -> None:
    model = load_llama(target_folder, CPU, torch.float32)
    prompts = [[1, 30, 40, 500], [1, 9, 8, 7, 6, 5, 4, 3], [77]]
    found = answer(model, prompts, 0.0, 12, end_id=2)
    for prompt, ids in zip(prompts, found, strict=True):
        expected = reference.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt)), max_new_tokens=12, do_sample=False
        )[0, len(prompt) :]
        assert ids == expected.tolist()


def test_the_top_of_the_distribution_is_exact(target_folder: Path) -> None:
    logits = torch.randn(5, 4096, generator=torch.Generator().manual_seed(5)) * 3
    inverse, cut = torch.ones(5), torch.full((5,), KEEP_ALL)
    _, ids, probabilities = choose(logits, inverse, cut, *noise(5, 4096, CPU), 48)
    expected = logits.softmax(1).topk(48)
    assert torch.equal(ids, expected.indices)
    torch.testing.assert_close(probabilities, expected.values)


def test_samples_follow_the_tempered_distribution_and_the_cut() -> None:
    torch.manual_seed(2)
    count = 40_000
    logits = (torch.randn(64, generator=torch.Generator().manual_seed(7)) * 2).expand(count, 64).contiguous()
    for temperature, cut in ((0.7, KEEP_ALL), (1.0, -1.5)):
        inverse, cuts = torch.full((count,), 1 / temperature), torch.full((count,), cut)
        sampled, _, _ = choose(logits, inverse, cuts, *noise(count, 64, CPU), 4)
        tempered = logits[0] / temperature
        expected = tempered.masked_fill(tempered < tempered.max() + cut, -torch.inf).softmax(0)
        share = torch.bincount(sampled, minlength=64) / count
        assert float((share - expected).abs().max()) < 0.01
        assert not share[expected == 0].any()
    greedy, ids, _ = choose(logits, torch.full((count,), GREEDY), cuts, *noise(count, 64, CPU), 4)
    assert torch.equal(greedy, ids[:, 0])


def test_a_vocabulary_may_end_inside_of_a_group() -> None:
    torch.manual_seed(4)
    logits = (torch.randn(35, generator=torch.Generator().manual_seed(8)) * 2).expand(40_000, 35).contiguous()
    inverse, cut = torch.ones(40_000), torch.full((40_000,), KEEP_ALL)
    sampled, ids, probabilities = choose(logits, inverse, cut, *noise(40_000, 35, CPU), 35)
    expected = logits[0].softmax(0)
    assert float((torch.bincount(sampled, minlength=35) / 40_000 - expected).abs().max()) < 0.01
    assert torch.equal(ids[0], expected.topk(35).indices)
    torch.testing.assert_close(probabilities[0], expected.topk(35).values)


def test_ids_above_32767_survive_packing() -> None:
    ids = torch.tensor([0, 32767, 32768, 49151, 65535])
    assert torch.equal(unpack_ids(pack_ids(ids)), ids)


def test_stored_probabilities_are_those_of_a_full_forward(
    finished_run: Path, target_folder: Path, reference: LlamaForCausalLM
) -> None:
    shard = load_tensors(shard_files(finished_run / "shards")[0])
    tokens = unpack_ids(shard["tokens"])
    with torch.no_grad():
        expected = reference(tokens).logits.softmax(-1)
    stored = shard["probabilities"].float()
    torch.testing.assert_close(stored, expected.gather(2, unpack_ids(shard["ids"])), atol=1e-3, rtol=2e-3)
    torch.testing.assert_close(stored, expected.topk(16).values, atol=1e-3, rtol=2e-3)


def test_rows_begin_with_their_openings_and_stay_conversations(target_folder: Path, tokenizer: Any) -> None:
    settings = GenerationSettings(batch=32, length=160, k=4, answer_limit=12)
    openings = make_openings(tokenizer, 32, "any", longest=128)
    author = Author(load_llama(target_folder, CPU, torch.float32), settings, 2, "plain")
    rows = author.write(openings, 1)
    tokens = unpack_ids(rows.tokens)
    header = "<|im_end|>\n<|im_start|>assistant\n"
    seen = set()
    for row, flags, opening in zip(tokens.tolist(), rows.of_answer.tolist(), openings, strict=True):
        assert row[: len(opening.ids)] == list(opening.ids)
        assert not any(flags[: len(opening.ids) - 1])
        if opening.role == RAW:
            assert all(flags[len(opening.ids) - 1 :])
        elif opening.role == ANSWER:
            assert tokenizer.decode(opening.ids).endswith(header)
            # A random target never ends its answers: they are ended after 12 tokens, and a user's turn follows.
            first = len(opening.ids) - 1
            assert flags[first : first + 13] == [True] * 13 or 2 in row[first : first + 13]
            assert "<|im_start|>user\n" in tokenizer.decode(row[first:])
        seen.add(opening.role)
    assert seen == {USER, ANSWER, RAW}


def test_the_same_seed_writes_the_same_rows(target_folder: Path, tokenizer: Any) -> None:
    settings = GenerationSettings(batch=4, length=40, k=4)
    author = Author(load_llama(target_folder, CPU, torch.float32), settings, 2, "plain")
    openings = make_openings(tokenizer, 4, "any", longest=40)
    first, other = author.write(openings, 1), author.write(openings, 2)
    again = author.write(openings, 1)
    assert torch.equal(first.tokens, again.tokens) and torch.equal(first.ids, again.ids)
    assert not torch.equal(first.tokens, other.tokens)


def test_generation_goes_on_after_an_interruption(target_folder: Path, tokenizer: Any, tmp_path: Path) -> None:
    settings = GenerationSettings(batch=2, length=32, k=4)

    def write(run: Path, tokens: int) -> None:
        generate(run, target_folder, tokenizer, settings, tokens, None, (), CPU, "plain", lambda line: None)

    write(tmp_path / "whole", 3 * 64)
    write(tmp_path / "parts", 64)
    write(tmp_path / "parts", 3 * 64)
    whole, parts = (shard_files(tmp_path / name / "shards") for name in ("whole", "parts"))
    assert len(whole) == len(parts) == 3
    for one, other in zip(whole, parts, strict=True):
        assert all(torch.equal(load_tensors(one)[name], value) for name, value in load_tensors(other).items())
    changed = parts[0].stat().st_mtime_ns
    write(tmp_path / "parts", 3 * 64)
    assert parts[0].stat().st_mtime_ns == changed
    with pytest.raises(Refused, match="other settings"):
        generate(
            tmp_path / "parts",
            target_folder,
            tokenizer,
            GenerationSettings(batch=4, length=32, k=4),
            64,
            None,
            (),
            CPU,
            "plain",
            lambda line: None,
        )


def test_no_held_out_prompt_is_among_the_templates() -> None:
    held_out = {normal_form(turn) for prompt in read_prompts(SUITES) for turn in prompt.turns}
    assert SUITES and not held_out & {normal_form(turn) for turn in all_turns()}


def test_an_excluded_prompt_is_never_an_opening(tokenizer: Any) -> None:
    plain = make_openings(tokenizer, 200, "seed")
    asked = {tokenizer.decode(each.ids) for each in plain if each.role == ANSWER}
    question = sorted(asked)[0].split("user\n")[1].split("<|im_end|>")[0]
    again = make_openings(tokenizer, 200, "seed", [question.upper()])
    assert not any(f"user\n{question}<|im_end|>" in tokenizer.decode(each.ids) for each in again)


def test_the_templates_cover_the_six_kinds() -> None:
    kinds = {"question", "story", "code", "summary", "list", "multi-turn"}
    assert kinds <= {each.kind for each in TEMPLATES} and kinds <= {each.kind for each in BEGINNINGS}
    assert len(set(all_turns())) > 10_000
    assert sum(share for _, share in MIXTURE) == pytest.approx(1)


def test_logits_of_half_precision_states_come_in_float32() -> None:
    hidden, head = torch.randn(2, 8).bfloat16(), torch.randn(16, 8).bfloat16()
    assert float_logits(hidden, head).dtype is torch.float32


def test_a_decoder_steps_at_any_capacity(target_folder: Path) -> None:
    model = load_llama(target_folder, CPU, torch.float32)
    ids = torch.randint(49152, (2, 9), generator=torch.Generator().manual_seed(4))
    decoder = Decoder(model, 2, 20, fused=False)
    for n in range(9):
        hidden = decoder.step(ids[:, n], torch.tensor([n]), n + 1)
    torch.testing.assert_close(hidden, hidden_states(model, ids)[:, -1], atol=1e-4, rtol=1e-4)
