"""A tiny model behind a server of faults, connected to, and what a session takes for a pair."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from faulty_server import FaultyServer
from served_model import ServedModel

sys.path.append(str(Path(__file__).parents[2] / "decoding"))
from tiny_models import FunctionModel, table_model

from specdec_tui.backends.answering import Drawing
from specdec_tui.backends.model import LoadedDrafter
from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.backends.remote.capabilities import probe
from specdec_tui.backends.remote.client import Client
from specdec_tui.backends.remote.completions import Completions
from specdec_tui.backends.remote.model import RemoteModel
from specdec_tui.backends.tokenizer import Prompt
from specdec_tui.decoding.records import Step

VOCAB = 5
TARGET = table_model(11, VOCAB, spread=0.9, rare=0)
SMALL = table_model(12, VOCAB, spread=1.2, like=TARGET)
OTHER = table_model(14, VOCAB, spread=2.0)
PROMPT = [1, 2, 3, 1, 0, 2, 1, 3, 2]


def served(model: FunctionModel = TARGET, quirks: frozenset[str] = frozenset()) -> ServedModel:
    return ServedModel(lambda text: model.row(text).tolist(), VOCAB, most=3, quirks=quirks)


def connected(server: FaultyServer, key: str = "") -> RemoteModel:
    completions = Completions(Client(server.url, key), "served", VOCAB)
    found = probe(completions, PROMPT, PROMPT, lambda: False)
    told, _ = completions.prefixes(PROMPT, (), Drawing(), found.alternatives, lambda: False)
    return RemoteModel(completions, found, 2048, PROMPT, told[0])


class Digits:
    """A tokenizer whose text is its ids."""

    def encode(
        self, prompt: str, history: Sequence[tuple[str, str]] = (), chat: bool = True, cancelled: object = None
    ) -> Prompt:
        return Prompt([int(letter) for letter in prompt], prompt)

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(str, ids))

    def spell(self, work: Callable[[], Step], cancelled: Callable[[], bool]) -> Step:
        return work()

    piece = staticmethod(str)

    def stream(self) -> Digits:
        return self

    def push(self, ids: Iterable[int]) -> tuple[str, ...]:
        return tuple(map(str, ids))

    peek = push

    def rest(self) -> str:
        return ""


class RemotePair:
    """`target` is on a server, and SMALL drafts for it."""

    def __init__(self, target: RemoteModel) -> None:
        self.target, self.drafters, self.tokenizer = target, (LoadedDrafter(SMALL),), Digits()
        self.end_ids, self.asked = frozenset[int](), dict[str, object]()
        there = ModelInfo("served", "served by 127.0.0.1", "served", "none", 0, 0, 2048)
        self.info = PairInfo(there, (ModelInfo("small", "cpu", "float32", "none", 1, 4, None),), True)
