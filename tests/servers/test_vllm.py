"""Through a real vLLM: greedy texts are the server's own, sampled ones are distributed as its model says."""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from servers import KEY, vllm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

sys.path.append(str(Path(__file__).parents[1] / "decoding"))
sys.path.append(str(Path(__file__).parents[2] / "tools"))
import expand_demo
from tiny_drafters import make_drafter
from tiny_models import FunctionModel, table_model
from truth import agrees

from specdec_tui.backends.answering import Drawing
from specdec_tui.backends.presets import DEMO_DRAFTER, DEMO_TARGET
from specdec_tui.backends.remote.capabilities import probe
from specdec_tui.backends.remote.client import Client
from specdec_tui.backends.remote.completions import Completions
from specdec_tui.backends.remote.model import RemoteModel
from specdec_tui.benchmark.suites import builtin_suite
from specdec_tui.decoding.records import Checked, LosslessStatus, PrefillDone, RoundVerified, RunStarted, Step
from specdec_tui.decoding.sampling import Sampler
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

NAME, LENGTH = "smollm2", 24
STRATEGIES = ("target", "speculative", "ngram", "lookup")


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("demo") / "target"
    assert expand_demo.main([str(folder)]) == 0
    with vllm(folder, NAME, 2048) as url:
        yield url


@pytest.fixture(scope="module")
def engine(served: str) -> Iterator[LocalEngine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPECDEC_TUI_API_KEY", KEY)
        engine = LocalEngine()
        choice = ModelChoice(target_url=served, target=NAME, tokenizer=DEMO_TARGET, drafter=(DEMO_DRAFTER,))
        engine.load(choice, lambda step: None)
        yield engine


def own_completion(url: str, prompt: list[int]) -> list[int]:
    """What the server writes by itself, asked without the package."""
    body = {"model": NAME, "prompt": prompt, "max_tokens": LENGTH, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"{url}/completions",
        data=json.dumps(body | {"return_token_ids": True}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"},
    )
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)["choices"][0]["token_ids"]


def test_greedy_texts_are_the_servers_own_by_every_strategy_with_one_call_a_round(
    engine: LocalEngine, served: str
) -> None:
    settings = Settings(strategies=STRATEGIES, max_new_tokens=LENGTH, ignore_eos=True, insight=False)
    prompts = [prompt.turns[0] for prompt in builtin_suite("heldout")][::3][:20]
    assert len(prompts) == 20
    tokenizer = engine._pair.tokenizer  # type: ignore[union-attr]
    for prompt in prompts:
        engine.new_chat()
        ids: dict[str, list[int]] = {name: [] for name in STRATEGIES}
        verdicts: dict[str, Any] = {}
        read: list[int] = []
        for event in engine.run(prompt, settings, lambda: False):
            match event:
                case Step(record=RunStarted(), prompt_text=text):
                    read = tokenizer.read_again(text)
                case Step(strategy=strategy, record=PrefillDone(token=token) as record) if token is not None:
                    ids[strategy].append(token.id)
                    assert record.by_calls and record.calls == 1
                case Step(strategy=strategy, record=RoundVerified() as record):
                    ids[strategy] += [token.id for token in record.new_tokens]
                    assert strategy == "target" or record.calls == 1
                case Checked(strategy=strategy, lossless=lossless):
                    verdicts[strategy] = lossless.status
        expected = own_completion(served, read)
        assert len(expected) == LENGTH
        assert ids == dict.fromkeys(STRATEGIES, expected), prompt
        assert set(verdicts.values()) == {LosslessStatus.IDENTICAL}


TINY = 8
PROMPT = [1, 2, 3, 1, 0, 2, 1, 3, 2]
SAMPLERS = {
    "multinomial": Sampler("multinomial", 0.9),
    "nucleus": Sampler("nucleus", 1.0, top_p=0.8),
    "topk": Sampler("topk", 1.2, top_k=2),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RemoteModel]:
    """A random model of eight tokens behind vLLM, of which three alternatives are asked for."""
    folder = tmp_path_factory.mktemp("tiny")
    torch.manual_seed(1)
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "head_dim": 32}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=TINY, **sizes, **heads, tie_word_embeddings=False)).eval()
    torch.nn.init.normal_(model.lm_head.weight, std=0.35)
    torch.nn.init.normal_(model.model.embed_tokens.weight)
    model.save_pretrained(folder)
    words(TINY).save_pretrained(folder)
    rows: dict[tuple[int, ...], torch.Tensor] = {}

    def row(ids: list[int]) -> torch.Tensor:
        if (key := tuple(ids)) not in rows:
            with torch.inference_mode():
                rows[key] = model(torch.tensor([ids])).logits[0, -1].float()
        return rows[key]

    with vllm(folder, "tiny", 256) as url:
        completions = Completions(Client(url, KEY), "tiny", TINY)
        found = replace(probe(completions, PROMPT[:4], PROMPT * 8, lambda: False), alternatives=3)
        assert found.draws == {"temperature", "top_k", "top_p", "min_p"} and not found.why_not
        told, _ = completions.prefixes(PROMPT, (), Drawing(), 3, lambda: False)
        remote = RemoteModel(completions, found, 256, PROMPT, told[0])
        remote.row = row  # type: ignore[attr-defined]
        yield remote
        completions.client.close()


def words(count: int) -> PreTrainedTokenizerFast:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({f"w{id}": id for id in range(count)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="w0")


@pytest.mark.parametrize("processor", SAMPLERS)
@pytest.mark.parametrize("kind", ["model", "lookup"])
def test_the_first_tokens_are_distributed_as_the_model_says(tiny: RemoteModel, kind: str, processor: str) -> None:
    target = FunctionModel(TINY, tiny.row)  # type: ignore[attr-defined]
    own = table_model(5, TINY, spread=1.0)
    small = FunctionModel(TINY, lambda ids: 0.5 * target.row(ids) + own.row(ids))
    sampler = SAMPLERS[processor]
    assert agrees(
        400, tiny, PROMPT, lambda: make_drafter(kind, target, small), sampler, rule="rejection", end_ids=frozenset()
    )
