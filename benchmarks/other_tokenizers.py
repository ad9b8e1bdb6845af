"""What another tokenizer in the drafter costs: α and τ of `shared` and `retokenize` beside the same tokenizer.

    python benchmarks/other_tokenizers.py                      # the demo pair, about three minutes on two cores
    python benchmarks/other_tokenizers.py --folder /tmp/other  # keep the last drafter that was made, to look at

The drafter is the demo pair's own, with its ids in another order, and then with a share of its vocabulary taken away
too: those tokens stand for nothing any more, and texts that had them are read in smaller ones. Its weights know nothing
of that and still write them, so there only `shared`, which gives them no chance, is a fair drafter.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
from pathlib import Path

import torch
from transformers import AutoTokenizer, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils import logging

from specdec_tui.backends import demo
from specdec_tui.backends.gguf.config import config_of
from specdec_tui.backends.gguf.expanded import state_of
from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.decoding.records import Checked, LosslessStatus, Notice, RoundVerified, Status
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

TAKEN = (0.0, 0.2)
PROMPTS = (
    "Explain how rainbows form.",
    "Write a short story about a lighthouse keeper.",
    "Write a Python function that reverses a list.",
)


def make_drafter(folder: Path, taken: float, seed: int = 0) -> None:
    """The demo drafter with its ids shuffled and a share of its tokens taken away, saved in a folder."""
    file = GgufFile(demo.drafter_file())
    config = config_of(file)
    state = state_of(file, config, torch.float32)
    model = LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state)
    tokenizer = AutoTokenizer.from_pretrained(demo.drafter_folder())
    size = model.config.vocab_size
    dice = random.Random(seed)
    place = list(range(size))
    dice.shuffle(place)  # the new id of each old one
    old = torch.empty(size, dtype=torch.long)
    old[torch.tensor(place)] = torch.arange(size)
    with torch.no_grad():
        rows = model.get_input_embeddings().weight
        rows.copy_(rows[old].clone())
    for config in (model.config, model.generation_config):
        for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
            if getattr(config, name) is not None:
                setattr(config, name, place[getattr(config, name)])
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    vocabulary, merges = content["model"]["vocab"], [tuple(pair) for pair in content["model"]["merges"]]
    gone = {"".join(pair) for pair in merges if dice.random() < taken}
    content["model"]["merges"] = [pair for pair in merges if not {*pair, "".join(pair)} & gone]
    content["model"]["vocab"] = {f"□{id}" if token in gone else token: place[id] for token, id in vocabulary.items()}
    for token in content["added_tokens"]:
        token["id"] = place[token["id"]]
    names = {name: str(token) for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
    other = PreTrainedTokenizerFast(
        tokenizer_object=type(tokenizer.backend_tokenizer).from_str(json.dumps(content)), **names
    )
    other.chat_template = tokenizer.chat_template
    model.save_pretrained(folder)
    other.save_pretrained(folder)


def measured(engine: LocalEngine, way: str, tokens: int) -> str:
    """α, τ and what was judged, of `speculative` over the prompts, each a conversation of its own; greedy, γ 4."""
    judged = accepted = passes = written = 0
    told: set[str] = set()
    settings = Settings(strategies=("speculative",), tokenizers=way, max_new_tokens=tokens, insight=False)
    for prompt in PROMPTS:
        engine.new_chat()
        for event in engine.run(prompt, settings, lambda: False):
            if isinstance(event, Checked):
                assert event.lossless.status in (LosslessStatus.IDENTICAL, LosslessStatus.NEAR_TIES), event
            match getattr(event, "record", None):
                case RoundVerified() as round:
                    passes, written = passes + 1, written + len(round.new_tokens)
                    judged += sum(token.status in (Status.ACCEPTED, Status.REJECTED) for token in round.drafts)
                    accepted += sum(token.status is Status.ACCEPTED for token in round.drafts)
                case Notice(message=message) if "another tokenizer" in message:
                    told.add(message)
    words = [f"α {accepted / max(1, judged):.2f}", f"τ {written / passes:.2f}", f"{judged} judged", *sorted(told)]
    return "; ".join(words)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--folder", type=Path, help="keep the last drafter here")
    arguments = parser.parse_args()
    logging.disable_progress_bar()
    engine = LocalEngine()
    engine.load(ModelChoice(device="cpu"), lambda progress: None)
    print("same tokenizer:", measured(engine, "auto", arguments.tokens), flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for taken in TAKEN:
            folder = arguments.folder if arguments.folder and taken == TAKEN[-1] else Path(temporary) / f"{taken}"
            make_drafter(folder, taken)
            engine.load(ModelChoice(device="cpu", drafter=str(folder)), lambda progress: None)
            for way in ("shared",) if taken else ("shared", "retokenize", "auto"):
                print(f"{taken:.0%} taken away, {way}:", measured(engine, way, arguments.tokens), flush=True)


if __name__ == "__main__":
    main()
