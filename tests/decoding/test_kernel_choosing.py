"""The GPU's kernels that choose tokens against the torch programs and the sampler they stand for.

On a GPU, or with Triton and TRITON_INTERPRET=1 (slowly, in NumPy) on a CPU; elsewhere there is nothing to run them.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

if not GPU:
    # The interpreter dresses the language anew for every call of a function: once for each module is enough.
    from triton.runtime import interpreter

    dressed: set[int] = set()
    dress = interpreter._patch_lang

    def dress_once(function: Any) -> Any:
        if id(function.__globals__) not in dressed:
            dressed.add(id(function.__globals__))
            dress(function)
        return SimpleNamespace(restore=lambda: None)

    interpreter._patch_lang = dress_once

import triton.language as tl  # noqa: E402

from specdec_tui.backends import cuda_graphs  # noqa: E402
from specdec_tui.backends.cards import Card  # noqa: E402
from specdec_tui.backends.model import nothing  # noqa: E402
from specdec_tui.decoding.device_round import DeviceRound, RoundResult  # noqa: E402
from specdec_tui.decoding.device_rules import RULES as DEVICE_RULES  # noqa: E402
from specdec_tui.decoding.device_rules import Chance, Drafts, draw_freely  # noqa: E402
from specdec_tui.decoding.kernel_choosing import KernelChoosing, kernels  # noqa: E402
from specdec_tui.decoding.round_state import Plan, RoundState  # noqa: E402
from specdec_tui.decoding.sampling import PositionNoise, Sampler  # noqa: E402
from specdec_tui.decoding.torch_choosing import TorchChoosing  # noqa: E402

DEVICE = torch.device("cuda:0" if GPU else "cpu")
WIDTH, TILE = 77, 16
RULES = ["rejection", "coupled", "block", "skip-adjustment"]
INF, NAN = math.inf, math.nan


def choosing(sampler: Sampler, width: int = WIDTH, gamma: int = 2, room: int = 64) -> KernelChoosing:
    plan = Plan(gamma, width, sampler, "rejection", ())
    state = RoundState(plan, True, 64, DEVICE)
    state.begin([1, 2], 1, 40, torch.rand(state.uniforms, dtype=torch.float64).tolist(), 3)
    return KernelChoosing(plan, state, TILE, room)


def processed(sampler: Sampler, logits: torch.Tensor, room: int = 64) -> torch.Tensor:
    own = choosing(sampler, logits.shape[-1], len(logits) - 1, room)
    own._process(logits.to(DEVICE), own._chances, 0, own._place, False)
    return own._chances.cpu()


def assert_rows(sampler: Sampler, logits: torch.Tensor, room: int = 64) -> torch.Tensor:
    rows, expected = processed(sampler, logits, room), sampler.probabilities(logits, whole=True)
    assert torch.equal(rows > 0, expected > 0), "the same tokens are kept"
    torch.testing.assert_close(rows, expected, rtol=2e-6, atol=1e-9, equal_nan=True)
    return rows


SAMPLERS = [
    Sampler("multinomial", 1.0),
    Sampler("multinomial", 0.5, min_p=0.05),
    Sampler("topk", 1.0, top_k=1),
    Sampler("topk", 0.5, top_k=5),
    Sampler("topk", 2.0, top_k=40, min_p=0.2),
    Sampler("topk", 1.0, top_k=10_000),
    Sampler("nucleus", 1.0, top_p=0.9),
    Sampler("nucleus", 0.5, top_p=0.0),
    Sampler("nucleus", 4.0, top_p=0.999),
    Sampler("nucleus", 1.0, top_p=0.5, min_p=0.1),
    Sampler("topknucleus", 1.0, top_k=7, top_p=0.9),
    Sampler("topknucleus", 2.0, top_k=60, top_p=0.3),
    Sampler("topknucleus", 1.0, top_k=30, top_p=0.99, min_p=0.001),
]


def spread(kind: str) -> torch.Tensor:
    """Logits [2, V]."""
    torch.manual_seed(5)
    x = torch.randn(2, WIDTH)
    match kind:
        case "flat":
            return 0.1 * x
        case "peaked":
            return 6 * x
        case "ties":
            return (2 * x).round() / 2
        case "equal":
            return torch.full_like(x, 3.25)
        case "near":  # most of them in one bin of the first histogram
            return 5 + 1e-4 * x.round()
        case "masked":
            return torch.where(x > 0.5, x, -INF)
        case "far":
            return x * 30
    return x


@pytest.mark.parametrize("sampler", SAMPLERS, ids=str)
@pytest.mark.parametrize("kind", ["normal", "flat", "peaked", "ties", "equal", "near", "masked", "far"])
def test_the_same_tokens_are_kept_with_the_same_probabilities(kind: str, sampler: Sampler) -> None:
    assert_rows(sampler, spread(kind))


@pytest.mark.parametrize("seed", range(3))
def test_edges_are_exact_where_many_logits_are_close_together(seed: int) -> None:
    """Neighbouring floats at every distance from the best: each pass of the search has work to do."""
    torch.manual_seed(seed)
    for distance in (0.0, 1e-30, 1e-4, 0.031, 0.25, 3.0, 23.99, 24.0, 40.0):
        x = torch.full((1, 70), -200.0)
        x[0, 0] = 0.0
        bits = torch.tensor([distance]).view(torch.int32) + torch.randint(0, 5000, (50,), dtype=torch.int32) * 3 ** (
            seed % 3
        )
        x[0, 1:51] = -bits.view(torch.float32)
        for count in (2, 17, 50):
            rows = assert_rows(Sampler("topk", 1.0, top_k=count), x)
            value = x[0].sort(descending=True).values[count - 1]
            assert torch.equal(rows[0] > 0, (x[0] >= value) & (x[0] > -100))


@pytest.mark.parametrize("kind", ["normal", "ties", "equal", "masked"])
def test_a_list_without_room_for_what_is_near_changes_nothing(kind: str) -> None:
    for sampler in (SAMPLERS[3], SAMPLERS[10], Sampler("topknucleus", 1.0, 4, 0.6, min_p=0.2)):
        assert torch.equal(assert_rows(sampler, spread(kind), 2), assert_rows(sampler, spread(kind)))


def test_every_tie_at_an_edge_is_kept() -> None:
    x = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0, -0.0]])
    assert (processed(Sampler("topk", 1.0, top_k=2), x)[0] > 0).tolist() == [
        False,
        True,
        True,
        True,
        True,
        False,
        False,
    ]
    assert (processed(Sampler("topk", 1.0, top_k=6), x)[0] > 0).all()
    kept = processed(Sampler("nucleus", 1.0, top_p=0.5), x)[0] > 0
    assert kept.tolist() == [False, True, True, True, True, False, False]


@pytest.mark.parametrize("temperature", [1e-45, 1e-20, 1e-3])
def test_a_tiny_temperature_leaves_the_best_alone(temperature: float) -> None:
    x = torch.tensor([[1.0, 3.0, 2.5, 3.0]])
    for sampler in (Sampler("multinomial", temperature), Sampler("topknucleus", temperature, 3, 0.9)):
        assert processed(sampler, x).tolist() == [[0.0, 0.5, 0.0, 0.5]]


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[3], SAMPLERS[6], SAMPLERS[10]], ids=str)
@pytest.mark.parametrize("bad", [[NAN, 1.0, 2.0], [INF, 1.0, 2.0], [-INF, -INF, -INF], [NAN, INF, -INF]])
def test_a_row_that_has_no_distribution_has_no_numbers(bad: list[float], sampler: Sampler) -> None:
    good = [0.0, 1.0, 2.0]
    rows = processed(sampler, torch.tensor([good, bad, good]))
    assert rows[1].isnan().all() and torch.equal(rows[0], rows[2]) and rows[0].isfinite().all()


def test_a_row_has_the_same_numbers_alone_and_among_others() -> None:
    for sampler in SAMPLERS:
        x = spread("normal")
        assert torch.equal(processed(sampler, x)[1], processed(sampler, x[1:2])[0])


@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[3], SAMPLERS[6]], ids=str)
def test_a_draw_is_that_of_the_running_sum(sampler: Sampler) -> None:
    for kind in ("normal", "masked"):
        own = choosing(sampler)
        uniforms = torch.cat((torch.linspace(0, 1 - 2**-53, 8, dtype=torch.float64), torch.rand(4).double()))
        own._state.chance[: len(uniforms)] = uniforms.to(DEVICE)
        for index, uniform in enumerate(uniforms):
            own._state.taken.fill_(index)
            own.draft(0, spread(kind)[0].to(DEVICE))
            row = own._drafted[0]
            noise = PositionNoise(0, WIDTH, DEVICE)
            expected = draw_freely(row, uniform[None].to(DEVICE), noise, torch.zeros(1))
            assert own._state.given[:1].tolist() == expected.tolist()
            assert row[expected] > 0


def test_a_draw_at_the_border_of_two_ids_is_the_first_of_them() -> None:
    own = choosing(SAMPLERS[0])
    for index, uniform in enumerate((0.0, 0.25, 0.5, 0.75)):
        logits = torch.full((WIDTH,), -INF)
        logits[[3, 4, 30, 70]] = 1.0
        own._state.chance[index] = uniform
        own._state.taken.fill_(index)
        own.draft(0, logits.to(DEVICE))
        assert own._state.given[0].item() == [70, 30, 4, 3][index]


@pytest.mark.parametrize(
    ("values", "best"),
    [
        ([1.0, 3.0, 3.0], 1),
        ([-INF, -INF, -INF], 0),
        ([-0.0, 0.0, -1.0], 0),
        ([0.0, -0.0, -1.0], 0),
        ([1.0, INF, NAN], 2),
        ([-2.0, -1.0, -3.0], 1),
        ([1e-45, 0.0, -1e-45], 0),
    ],
)
def test_the_best_id_is_the_lowest_of_the_highest(values: list[float], best: int) -> None:
    row = torch.full((WIDTH,), -INF)
    for begin in (0, 15, 40, WIDTH - 3):  # in a tile, across two of them, at the end
        row[:] = -INF
        row[begin : begin + 3] = torch.tensor(values)
        own = choosing(Sampler())
        own.draft(0, row.to(DEVICE))
        assert own._state.given[0].item() == (0 if values == [-INF] * 3 else begin + best) == int(row.argmax())


class Bigrams:
    """A sequence whose logits follow from a token and its place alone."""

    capacity, card = 64, Card(DEVICE)

    def __init__(self, seed: int, width: int, spoilt: int = -1) -> None:
        generator = torch.Generator().manual_seed(seed)
        self._table = (1.5 * torch.randn(width + 40, width, generator=generator)).to(DEVICE)
        if spoilt >= 0:
            self._table[spoilt] = NAN

    def prefill(self, ids: torch.Tensor, between: Callable[[], None] = nothing) -> torch.Tensor:
        raise NotImplementedError

    def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
        places = begin + torch.arange(len(ids), device=DEVICE)
        return (self._table[ids] + self._table[-40:][places % 40])[-keep:]


def played(plan: Plan, choose: Any, drafts: bool, rounds: int, spoilt: int = -1) -> tuple[list[RoundResult], list[Any]]:
    """Results of rounds, and what they left."""
    drafter = Bigrams(2, plan.drafter_ids) if drafts else None
    made = DeviceRound(
        Bigrams(1, plan.width, spoilt), drafter, plan, choose=lambda plan, state, mark: choose(plan, state)
    )
    generator = torch.Generator().manual_seed(7)
    uniforms = torch.rand(made.uniforms, dtype=torch.float64, generator=generator).tolist()
    made.begin([5, 9, 4], 2, 3 + 20, uniforms, 11)
    results, left = [], []
    for number in range(rounds):
        if not drafts and plan.gamma:
            made.give(
                results[-1].emitted if results else 4,
                [(3 * number + 5 * i) % plan.width for i in range(number % (plan.gamma + 1))],
            )
        batch = made.send(made.step, plan.steps)
        results += made.read(batch)[0]
        scores = torch.stack([made.scores_of(batch, i) for i in range(plan.steps)]).cpu().clone()
        by_round = [made.rows_of(batch, i) for i in range(plan.steps)]
        rows = torch.stack([torch.stack([*rows]) for rows in by_round if rows]).cpu() if drafts else None
        assert drafts or by_round == [None] * plan.steps
        left.append((scores, rows, [tensor.tolist() for tensor in made.state]))
    return results, left


def small(plan: Plan, state: RoundState) -> KernelChoosing:
    return KernelChoosing(plan, state, TILE)


def assert_same(one: list[RoundResult], other: list[RoundResult]) -> bool:
    """Up to a round without a distribution, behind which nothing means anything: whether there was none."""
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.drafts, mine.accepted, mine.sound) == (theirs.drafts, theirs.accepted, theirs.sound)
        for ours, others in zip(mine.numbers, theirs.numbers, strict=True):
            assert ours == pytest.approx(others, rel=2e-5, abs=1e-9, nan_ok=True)
        if not mine.sound:
            return False
        assert mine.emitted == theirs.emitted
        assert mine.score == pytest.approx(theirs.score, rel=1e-5, nan_ok=True)
    return True


def fit(logits: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(logits, (0, WIDTH - len(logits)), value=-INF)


def compare(sampler: Sampler, rule: str, gamma: int, kind: str, rounds: int = 3, spoilt: int = -1) -> list[RoundResult]:
    drafts, known = kind in ("model", "smaller"), WIDTH - 6 * (kind == "smaller")
    steps = {"none": 3, "smaller": 2}.get(kind, 1)
    plan = Plan(gamma, WIDTH, sampler, rule, (3, 8, 50), steps, fit, known if drafts else 0)
    one, mine = played(plan, small, drafts, rounds, spoilt)
    other, theirs = played(plan, TorchChoosing, drafts, rounds, spoilt)
    if not assert_same(one, other):
        return one
    for (scores, rows, state), (their_scores, their_rows, their_state) in zip(mine, theirs, strict=True):
        torch.testing.assert_close(scores, their_scores, rtol=1e-5, atol=1e-9, equal_nan=True)
        assert (rows is None) == (their_rows is None)
        if rows is not None and their_rows is not None:
            torch.testing.assert_close(rows, their_rows, rtol=1e-5, atol=1e-9, equal_nan=True)
        assert state[0][:6] == their_state[0][:6], "length, numbers taken, slot, tail, and the last token"
    return one


KINDS = [("none", 0), ("model", 1), ("model", 3), ("smaller", 5), ("given", 4)]


@pytest.mark.parametrize(("kind", "gamma"), KINDS)
def test_greedy_rounds_are_those_of_torch(kind: str, gamma: int) -> None:
    compare(Sampler(), "", gamma, kind)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("kind", "gamma"), KINDS)
def test_sampled_rounds_are_those_of_torch(kind: str, gamma: int, rule: str) -> None:
    # Where nothing else is told they may differ by rounding, which a draw rarely sees.
    for sampler in (SAMPLERS[0], SAMPLERS[10]):
        found = compare(sampler, rule, gamma, kind)
        assert all(result.sound for result in found)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("kind", "gamma"), [("none", 0), ("model", 3)])
def test_a_round_without_a_distribution_says_so(kind: str, gamma: int, rule: str) -> None:
    found = compare(SAMPLERS[0], rule, gamma, kind, rounds=1, spoilt=4)
    assert not found[0].sound


@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_residual_that_rounding_leaves_empty_is_drawn_from_the_target(rule: str) -> None:
    q = torch.full((2, WIDTH), 1 / 128)
    q[:, 20] = 0.4
    p = torch.full((3, WIDTH), 1 / 128)
    p[:, 20] = 0.39

    class Prepared(KernelChoosing):
        def _process(self, logits: torch.Tensor, chances: torch.Tensor, begin: int, kept: Any, stamped: bool) -> None:
            chances[: len(logits)] = logits
            padded = torch.nn.functional.pad(logits, (0, self._tiles * TILE - WIDTH)).double()
            self._running[: len(logits)] = padded.view(len(logits), -1, TILE).sum(-1)

    plan = Plan(2, WIDTH, Sampler("multinomial", 1.0), rule, (), 1, None, WIDTH)
    state = RoundState(plan, True, 64, DEVICE)
    state.begin([1, 2], 1, 40, [*[0.999999] * 4, 0.5, 0.5], 3)  # two for the drafts, two for their tests, the token's
    own = Prepared(plan, state, TILE)
    own.start()
    for index in range(2):
        own.draft(index, q[index].to(DEVICE))
    state.given.fill_(20)
    own.finish(p.to(DEVICE))
    uniforms = torch.tensor([0.999999, 0.999999, 0.5], dtype=torch.float64)
    chance = Chance(uniforms, state.noise, state.length)
    found = DEVICE_RULES[rule].verify(Drafts(torch.tensor([20, 20]), q, torch.tensor([2])), p, chance)
    assert state.out[0, 2:4].tolist() == [float(found.accepted), float(found.emitted)]
    assert found.accepted < 2 and found.emitted > 5


@pytest.mark.parametrize("sampler", [Sampler(), SAMPLERS[0]], ids=str)
@pytest.mark.parametrize("gamma", [0, 2])
def test_kernels_tell_when_drafts_and_pass_had_ended(
    gamma: int, sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The interpreter has no clock: each look at one is one nanosecond later."""
    ticks = itertools.count(5)
    mark: Callable[[torch.Tensor], None] = cuda_graphs.mark
    if not GPU:
        mark = lambda place: place.fill_(next(ticks)) and None  # noqa: E731
        found = kernels()
        assert found is not None
        monkeypatch.setattr(found.choosing, "globaltimer", lambda: tl.full((), next(ticks), tl.int64))
    plan = Plan(gamma, WIDTH, sampler, "rejection", (), 2, None, WIDTH)
    drafter = Bigrams(2, WIDTH) if gamma else None
    choose = lambda plan, state, mark: KernelChoosing(plan, state, TILE, stamps=True)  # noqa: E731
    made = DeviceRound(Bigrams(1, WIDTH), drafter, plan, mark, choose)
    made.begin([5, 9, 4], 2, 23, [0.5] * made.uniforms, 11)
    times = [(result.draft_seconds, result.verify_seconds) for result in made.read(made.send(made.step, 2))[0]]
    if GPU:
        assert all((0 < draft < 0.1) == (gamma > 0) and 0 < verify < 0.1 for draft, verify in times)
    else:
        assert times == [(1e-9 * (gamma > 0), 1e-9)] * 2


class Chain(Bigrams):
    """Logits that follow from the last token alone: texts are a Markov chain."""

    capacity = 4200

    def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
        return self._table[ids][-keep:]


def chain_statistic(rule: str, sampler: Sampler, width: int = 23, texts: int = 12) -> tuple[float, int]:
    """Chi-square of what follows each token of long texts against the target's distributions, and its freedom."""
    target, drafter = Chain(1, width), Chain(2, width)
    drafter._table[:, 5] += 1.5  # far from the target's
    made = DeviceRound(
        target,
        drafter,
        Plan(3, width, sampler, rule, (), 1, None, width),
        choose=lambda plan, state, mark: small(plan, state),
    )
    play = cuda_graphs.capture(made.step, made.state)
    counts = torch.zeros(width, width, dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    for text in range(texts):
        made.begin([1, 2], 1, 4000, torch.rand(made.uniforms, dtype=torch.float64, generator=generator).tolist(), text)
        last = 2
        for _ in range(950):
            ((result,), _) = made.read(made.send(play, 1))
            for token in [*result.drafts[: result.accepted], result.emitted]:
                counts[last, token] += 1
                last = token
    expected = sampler.probabilities(target._table[:width], whole=True).double().cpu()
    expected *= counts.sum(1, keepdim=True)
    common = expected >= 5
    assert counts[expected == 0].sum() == 0
    return float(((counts - expected) ** 2 / expected)[common].sum()), int(common.sum() - (common.any(1)).sum())


@pytest.mark.skipif(not GPU, reason="needs a GPU: many rounds")
@pytest.mark.parametrize("sampler", [SAMPLERS[0], SAMPLERS[3], SAMPLERS[6], SAMPLERS[10]], ids=str)
@pytest.mark.parametrize("rule", RULES)
def test_texts_are_distributed_as_the_targets_but_under_the_rule_that_leaves_the_residual_out(
    rule: str, sampler: Sampler
) -> None:
    found, freedom = chain_statistic(rule, sampler)
    bound = freedom + 5 * math.sqrt(2 * freedom)
    assert (found > 2 * bound) if rule == "skip-adjustment" else found < bound
