"""What a server can do is found out by asking it, and what it cannot do exactly is refused or left out."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from faulty_server import FaultyServer
from served_model import ServedModel

from specdec_tui.backends.answering import Drawing
from specdec_tui.backends.remote.capabilities import Capabilities, probe
from specdec_tui.backends.remote.client import Client, ServerError
from specdec_tui.backends.remote.completions import Completions
from specdec_tui.backends.remote.connect import sentences
from specdec_tui.backends.remote.model import RemoteModel

VOCAB = 30
TABLE = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(4)) * 1.5
PROBE = [3, 7, 1, 9]


def row(text: list[int]) -> list[float]:
    return (TABLE[text[-1]] + 0.3 * TABLE[len(text) % VOCAB]).tolist()


@pytest.fixture
def asked() -> Iterator[list[Client]]:
    clients: list[Client] = []
    yield clients
    for client in clients:
        client.close()


def probed(asked: list[Client], *quirks: str, **settings: int) -> Capabilities:
    with FaultyServer(ServedModel(row, VOCAB, quirks=frozenset(quirks), **settings)) as server:
        asked.append(Client(server.url))
        return probe(Completions(asked[-1], "served", VOCAB), PROBE, PROBE * 4, lambda: False)


def test_a_whole_server_can_do_all(asked: list[Client]) -> None:
    found = probed(asked)
    assert (found.alternatives, found.why_not) == (20, ())
    assert found.draws == {"temperature", "top_k", "top_p", "min_p"}
    assert found.scores_seconds and found.prefixes_seconds and found.faster in ("scores", "prefixes")


def test_every_alternative_of_a_small_vocabulary_is_asked_for(asked: list[Client]) -> None:
    assert probed(asked, most=VOCAB).alternatives == VOCAB


@pytest.mark.parametrize(
    ("quirk", "said"),
    [
        ("off by one", "log-probabilities of a prompt are not those of their places"),
        ("no prompt logprobs", "log-probabilities of a prompt: the server refuses this (HTTP 400)"),
    ],
)
def test_log_probabilities_of_a_prompt_that_are_not_right_are_not_used(
    asked: list[Client], quirk: str, said: str
) -> None:
    found = probed(asked, quirk)
    assert found.scores_seconds is None and found.faster == "prefixes"
    assert said in found.why_not[0] and said in sentences("it", found)[1]


def test_a_server_of_single_prompts_is_asked_for_their_log_probabilities_and_draws_nothing(asked: list[Client]) -> None:
    found = probed(asked, "no batch")
    assert found.prefixes_seconds is None and found.faster == "scores" and not found.draws
    assert "several prompts in one call" in found.why_not[0]


def test_draws_that_hang_together_are_not_used(asked: list[Client]) -> None:
    found = probed(asked, "one chance")
    assert not found.draws and "the same ones" in found.why_not[0]
    model = RemoteModel(Completions(asked[0], "served", VOCAB), found, None, PROBE, None)  # type: ignore[arg-type]
    assert "do not follow temperature" in model.refusal(Drawing(0.7)) and not model.refusal(Drawing())


def test_what_draws_do_not_follow_is_told(asked: list[Client]) -> None:
    found = probed(asked, "no top_k")
    assert found.draws == {"temperature", "top_p", "min_p"} and found.why_not == ("it does not draw by top-k",)


@pytest.mark.parametrize(("quirk", "name"), [("no temperature", "temperature"), ("top_p first", "top_p")])
def test_draws_at_another_temperature_or_in_another_order_are_found(asked: list[Client], quirk: str, name: str) -> None:
    found = probed(asked, quirk)
    assert name not in found.draws and f"it does not draw by {name.replace('_', '-')}" in found.why_not


def test_what_a_server_tells_of_its_processed_distribution_is_not_processed_again(asked: list[Client]) -> None:
    found = probed(asked, "processed")
    assert not found.plain and "those that it draws from" in found.why_not[0]
    assert probed(asked).plain


@pytest.mark.parametrize(
    ("quirks", "said"),
    [
        (("no ids",), "the prompt must be a string"),
        (("untold ids",), "its tokens are not told by their ids"),
        (("off by one", "no batch"), "drafts cannot be verified by it"),
    ],
)
def test_a_server_that_cannot_verify_is_refused_with_the_reason(
    asked: list[Client], quirks: tuple[str, ...], said: str, at_once: None
) -> None:
    with pytest.raises(ServerError, match=said):
        probed(asked, *quirks)


def test_what_decides_a_draw_is_always_sent(asked: list[Client]) -> None:
    """A server draws by its model's own defaults where a question leaves something open."""
    with FaultyServer(ServedModel(row, VOCAB, quirks=frozenset({"own defaults"}))) as server:
        asked.append(Client(server.url))
        completions = Completions(asked[-1], "served", VOCAB)
        drawn = {completions.prefixes([3], (), Drawing(2.0), 1, lambda: False)[0][0].drawn for _ in range(30)}
    assert len(drawn) > 1
