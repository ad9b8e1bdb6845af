"""Through real calls: texts are the server's own, one call a round, whatever drafts and however it is asked."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_server import FaultyServer
from remote_pair import PROMPT, SMALL, TARGET, VOCAB, connected, served

sys.path.append(str(Path(__file__).parents[2] / "decoding"))
from tiny_drafters import KINDS, make_drafter
from tiny_models import emitted, ended, rounds, run
from truth import agrees, some

from specdec_tui.backends.remote.model import RemoteModel
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.lossless import check
from specdec_tui.decoding.records import EndReason, LosslessStatus, PrefillDone
from specdec_tui.decoding.sampling import Sampler

SAMPLERS = {
    "multinomial": Sampler("multinomial", 0.9),
    "nucleus": Sampler("nucleus", 0.9, top_p=0.7),
    "topk": Sampler("topk", 1.2, top_k=2),
}
WAYS = {"prefixes": ("off by one",), "scores": ("no batch",), "either": (), "processed": ("processed",)}


@pytest.fixture
def model(request: pytest.FixtureRequest) -> Iterator[RemoteModel]:
    quirks = frozenset(WAYS[getattr(request, "param", "either")])
    with FaultyServer(served(quirks=quirks)) as server:
        model = connected(server)
        model.row = TARGET.row  # type: ignore[attr-defined]
        yield model
        model.completions.client.close()


def drafter_of(kind: str) -> Any:
    return None if kind == "none" else make_drafter(kind, TARGET, SMALL)


@pytest.mark.parametrize("model", ["prefixes", "scores", "either"], indirect=True)
def test_greedy_texts_are_the_servers_own_and_each_round_is_one_call(model: RemoteModel) -> None:
    plain = emitted(run(model, PROMPT, max_new_tokens=40))
    assert plain == emitted(run(TARGET, PROMPT, max_new_tokens=40))
    for kind in KINDS:
        for gamma in (0, 1, 3, 8):
            records = run(model, PROMPT, drafter_of(kind), max_new_tokens=40, gamma=gamma)
            assert emitted(records) == plain, (kind, gamma)
            assert {one.calls for one in rounds(records)} == {1}
            (prefill,) = (one for one in records if isinstance(one, PrefillDone))
            assert prefill.by_calls and prefill.calls == 1
            verdict = check(model, PROMPT, plain, None, sampler=Sampler("greedy"), rule="rejection", seed=0, bound=1e-3)
            assert verdict.status is LosslessStatus.IDENTICAL


def test_another_text_is_not_called_identical(model: RemoteModel) -> None:
    plain = emitted(run(model, PROMPT, max_new_tokens=12))
    wrong = [*plain[:5], (plain[5] + 1) % VOCAB, *plain[6:]]
    found = check(model, PROMPT, wrong, None, sampler=Sampler("greedy"), rule="rejection", seed=0, bound=1e-3)
    assert found.status is LosslessStatus.DIFFERENT


@pytest.mark.parametrize(
    ("kind", "processor"),
    [
        pytest.param(*one.values, marks=[*one.marks, *[pytest.mark.large] * (one.values[0] != "none")])
        for one in some(("none", "lookup", "model"), tuple(SAMPLERS))
    ],
)
def test_sampled_texts_are_distributed_as_the_server_draws(model: RemoteModel, kind: str, processor: str) -> None:
    assert agrees(
        250, model, PROMPT, lambda: drafter_of(kind), SAMPLERS[processor], rule="rejection", end_ids=frozenset({0})
    )


@pytest.mark.parametrize(
    "processor", ["nucleus", *(pytest.param(name, marks=pytest.mark.large) for name in ("multinomial", "topk"))]
)
@pytest.mark.parametrize("model", ["processed"], indirect=True)
def test_a_server_that_tells_of_what_it_draws_from_is_sampled_by_its_own_draws(
    model: RemoteModel, processor: str
) -> None:
    sampler = SAMPLERS[processor]
    assert agrees(250, model, PROMPT, lambda: drafter_of("model"), sampler, rule="rejection", end_ids=frozenset({0}))


def test_what_a_server_cannot_do_exactly_ends_the_run_with_the_reason(model: RemoteModel) -> None:
    hot = Sampler("multinomial", 0.9)
    for settings, said in (
        ({"sampler": hot, "rule": "coupled"}, "the coupled rule needs whole distributions"),
        ({"sampler": hot, "rule": "block"}, "use rejection"),
        ({"sampler": Sampler("nucleus", 0.9, top_p=0.8, min_p=0.1)}, "before top-p"),
        ({"sampler": Sampler("multinomial", 0.9, typical_p=0.5)}, "typical-p"),
        ({"sampler": Sampler("multinomial", 0.005)}, "at a temperature of 0.01 at least"),
        ({"controls": Controls(banned=((1,),))}, "bad words: they change"),
        ({"controls": Controls(presence_penalty=0.5)}, "presence penalty: they change whole distributions"),
    ):
        end = ended(run(model, PROMPT, drafter_of("lookup"), max_new_tokens=4, **settings))
        assert end.reason is EndReason.ERROR and said in end.message


def test_the_plain_text_is_refused_where_the_server_draws_in_another_way_and_drafts_are_judged_here(
    model: RemoteModel,
) -> None:
    known = Sampler("topknucleus", 0.9, top_k=2, top_p=0.9, min_p=0.2)
    assert ended(run(model, PROMPT, drafter_of("lookup"), max_new_tokens=4, sampler=known)).reason is EndReason.LENGTH
    end = ended(run(model, PROMPT, max_new_tokens=4, sampler=known))
    assert end.reason is EndReason.ERROR and "before top-p" in end.message
    assert ended(run(model, PROMPT, max_new_tokens=4, sampler=Sampler("topk", 1.0, top_k=2), rule="block")).reason is (
        EndReason.LENGTH
    )
