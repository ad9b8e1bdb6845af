"""Several rounds of a program are read at once, and the next may be under way: the records are those of one by one."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest
import torch
from test_device_run import GREEDY, PROMPT, RULES, SAMPLERS, comparable, drafter_of
from tiny_transformers import tiny_model

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.decoding import device_round, device_run
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.drafters import Drafter, ModelDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import EndReason, Notice, Record, RoundVerified, RunEnded, tokens_of
from specdec_tui.decoding.sampling import Sampler

GAMMA = 3
SLOW = device_run.SLOW


@pytest.fixture(autouse=True)
def rounds_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy this machine is."""
    monkeypatch.setattr(device_run, "SLOW", float("inf"))


@pytest.fixture(scope="module")
def target() -> TransformersModel:
    return TransformersModel(tiny_model("llama", vocab_size=64, num_hidden_layers=1))


@pytest.fixture(scope="module")
def small() -> TransformersModel:
    return TransformersModel(tiny_model("llama", vocab_size=60, num_hidden_layers=1))


class Played(Programs):
    """Programs that count the rounds that were played, and know the longest text that the device has had."""

    def __init__(self) -> None:
        super().__init__(self._capture)
        self.rounds = self.longest = 0

    def _capture(self, step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:

        def play() -> None:
            self.rounds += 1
            step()
            self.longest = max(self.longest, int(state[0][0]))

        return play


def decoding(
    target: TransformersModel, drafter: Drafter | None, programs: Programs | None, **settings: Any
) -> Iterator[Record]:
    settings = {"strategy": "t", "sampler": GREEDY, "gamma": GAMMA, "max_new_tokens": 30} | settings
    return decode(target, PROMPT, drafter=drafter, programs=programs, **settings)


def told(records: list[Record]) -> list[Any]:
    """All that is told but the clock readings, to the last bit."""
    return [
        (comparable(record), [(t.p, t.q, t.acceptance, t.draw, t.insight) for t in tokens_of(record)])
        for record in records
    ]


def rounds_of(records: list[Record]) -> list[RoundVerified]:
    return [record for record in records if isinstance(record, RoundVerified)]


CASES = [(GREEDY, "rejection"), *((sampler, rule) for rule in RULES for sampler in (SAMPLERS[0], SAMPLERS[3]))]


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["none", "model"])
@pytest.mark.parametrize(("sampler", "rule"), CASES, ids=str)
def test_how_many_rounds_are_read_at_once_changes_no_bit(
    sampler: Sampler,
    rule: str,
    kind: str,
    target: TransformersModel,
    small: TransformersModel,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings: dict[str, Any] = {"sampler": sampler, "rule": rule, "seed": 4}
    texts = []
    for steps, alone, insight in ((1, False, True), (2, False, True), (4, False, True), (4, True, True)):
        monkeypatch.setattr(device_run, "STEPS", steps)
        drafter = drafter_of(kind, target, small)
        texts.append(told([*decoding(target, drafter, Programs(), alone=alone, insight=insight, **settings)][2:]))
    assert texts[0] == texts[1] == texts[2] == texts[3]
    ahead = []
    for steps in (1, 4):
        monkeypatch.setattr(device_run, "STEPS", steps)
        ahead.append(told([*decoding(target, drafter_of(kind, target, small), Programs(), alone=True, **settings)][2:]))
    assert ahead[0] == ahead[1]
    assert [one for one, _ in ahead[0]] == [one for one, _ in texts[0]]


@pytest.mark.parametrize("alone", [False, True])
def test_rounds_never_outrun_the_room(alone: bool, target: TransformersModel, small: TransformersModel) -> None:
    """Whether a round keeps all of its drafts, as here, or none: the drafter is the target, or another model."""
    for model in (target, small):
        whole = [*decoding(target, ModelDrafter(model, 64), None, max_new_tokens=30)]
        ids = [t.id for r in rounds_of(whole) for t in r.new_tokens]
        for length in range(2, 30):
            programs = Played()
            records = [*decoding(target, ModelDrafter(model, 64), programs, max_new_tokens=length, alone=alone)]
            assert programs.longest == len(PROMPT) + length
            assert programs.rounds == len(rounds_of(records)), "none was played for nothing"
            assert [t.id for r in rounds_of(records) for t in r.new_tokens] == ids[: length - 1]
            assert records[-1] == RunEnded(EndReason.LENGTH)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", ["none", "model"])
def test_what_is_played_behind_an_end_token_is_dropped(
    kind: str, alone: bool, target: TransformersModel, small: TransformersModel
) -> None:
    plain = [*decoding(target, drafter_of(kind, target, small), None)]
    text = [t.id for r in rounds_of(plain) for t in r.new_tokens]
    dropped = set()
    for end in dict.fromkeys(text[:12]):
        settings: dict[str, Any] = {"end_ids": frozenset({end})}
        programs = Played()
        expected = [*decoding(target, drafter_of(kind, target, small), None, **settings)]
        records = [*decoding(target, drafter_of(kind, target, small), programs, alone=alone, **settings)]
        assert [one for one, _ in told(records[2:])] == [one for one, _ in told(expected[1:])]
        assert records[-1] == RunEnded(EndReason.END_TOKEN)
        again = [*decoding(target, drafter_of(kind, target, small), programs, alone=alone, **settings)]
        assert told(again[1:]) == told(records[2:]), "a program that went beyond the end serves again"
        dropped.add(programs.rounds // 2 - len(rounds_of(records)))
    assert len(dropped) > 1 and max(dropped) >= 2 and min(dropped) >= 0


BAD = 59


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize(("sampler", "rule"), CASES[:1] + CASES[2::2], ids=str)
def test_scores_that_are_no_numbers_in_the_middle_of_a_batch_end_it_there(
    sampler: Sampler, rule: str, alone: bool, target: TransformersModel
) -> None:
    spoilt, likes = tiny_model("llama", vocab_size=64), tiny_model("llama", vocab_size=64)
    with torch.no_grad():
        spoilt.get_input_embeddings().weight[BAD] = torch.nan
        spoilt.get_output_embeddings().weight[BAD] = 0
        likes.get_output_embeddings().weight[BAD] *= 4 if sampler.is_greedy else 2
    model = TransformersModel(spoilt)
    places = set()
    for seed in range(4):
        settings: dict[str, Any] = {"sampler": sampler, "rule": rule, "seed": seed, "max_new_tokens": 40}
        if sampler.is_greedy:
            settings["given"] = [5 + 3 * seed, 7]
        texts = []
        for programs in (None, Programs()):
            records = [*decoding(model, ModelDrafter(TransformersModel(likes), 64), programs, alone=alone, **settings)]
            assert records[-1] == RunEnded(EndReason.LENGTH)
            notices = [place for place, record in enumerate(records) if isinstance(record, Notice)]
            if notices:
                assert programs is not None and len(notices) == 1
                places.add(len(rounds_of(records[: notices[0]])) % device_run.STEPS)
            texts.append([[(t.id, t.status) for t in tokens_of(r)] for r in rounds_of(records)])
        assert texts[0] == texts[1]
    assert places - {0}, "some stood behind the first round of a batch"


@pytest.mark.parametrize(
    ("kind", "alone", "insight", "ahead"),
    [
        ("model", True, False, 4),
        ("none", True, False, 4),
        ("model", False, False, 0),
        ("none", False, False, 0),
        ("model", True, True, 0),
        ("lookup", True, False, 0),
    ],
)
def test_the_next_rounds_are_under_way_only_where_nothing_else_may_run(
    kind: str, alone: bool, insight: bool, ahead: int, target: TransformersModel, small: TransformersModel
) -> None:
    programs = Played()
    records = decoding(
        target, drafter_of(kind, target, small), programs, alone=alone, insight=insight, max_new_tokens=200
    )
    seen = 0
    for record in records:
        seen += isinstance(record, RoundVerified)
        if seen == 1:
            break
    assert programs.rounds == (1 if kind == "lookup" else 4 + ahead)


def stopped_after(most: int, begin: Callable[[Callable[[], bool]], Iterator[Record]]) -> list[Record]:
    seen: list[Record] = []
    for record in begin(lambda: len(seen) >= most):
        seen.append(record)
    return seen


@pytest.mark.parametrize("alone", [False, True])
def test_a_run_that_is_left_or_stopped_at_any_record_leaves_a_program_that_serves_again(
    alone: bool, target: TransformersModel, small: TransformersModel
) -> None:
    programs, build = Played(), lambda: ModelDrafter(small, 64)
    settings: dict[str, Any] = {"sampler": SAMPLERS[0], "seed": 2, "alone": alone}
    list(decoding(target, build(), programs, **settings))
    whole = told([*decoding(target, build(), programs, **settings)])
    for most in range(1, len(whole) - 1, 4):
        left = decoding(target, build(), programs, **settings)
        begun = [next(left) for _ in range(most)]
        assert isinstance(left, Generator)
        left.close()
        assert told(begun) == whole[:most]
        stopped = stopped_after(most, lambda asked: decoding(target, build(), programs, cancelled=asked, **settings))
        assert stopped[-1] == RunEnded(EndReason.CANCELLED) and len(stopped) > max(most, 1)
        assert told(stopped[:-1]) == whole[: len(stopped) - 1]
        assert told([*decoding(target, build(), programs, **settings)]) == whole


class FakeDevice:
    """Computes beside the host: a round takes `round_seconds`, to ask for it `asking`, to read some of them `reading`.

    `now`: the host's clock.
    """

    def __init__(self, round_seconds: float, asking: float = 0.0, reading: float = 0.0) -> None:
        self.now = self.free = 0.0
        self.round_seconds, self.asking, self.reading, self.batches = round_seconds, asking, reading, list[int]()

    def __call__(self) -> float:
        return self.now

    def capture(self, step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:
        def play() -> None:
            step()
            self.batches[-1] += 1
            self.now += self.asking
            self.free = max(self.free, self.now) + self.round_seconds

        return play

    @property
    def reached(self) -> float:
        return max(self.now, self.free)


class FakeStretch:
    device: FakeDevice

    def begin(self) -> None:
        self.device.batches.append(0)
        self._begin = self.device.reached

    def end(self) -> None:
        self._end = self.device.reached

    def seconds(self) -> float:
        self.device.now = max(self.device.now, self._end) + self.device.reading
        return self._end - self._begin


def timed(
    target: TransformersModel,
    drafter: Drafter | None,
    monkeypatch: pytest.MonkeyPatch,
    pause: float,
    alone: bool,
    device: FakeDevice,
) -> tuple[float, float]:
    """The sum of the rounds' seconds, and the time of the device's last round."""
    monkeypatch.setattr(FakeStretch, "device", device, raising=False)
    monkeypatch.setattr(device_round, "HostStretch", FakeStretch)
    # Its passes take none of this clock's time.
    programs, begin, total = Programs(device.capture, lambda place: None), 0.0, 0.0
    for record in decoding(target, drafter, programs, alone=alone, max_new_tokens=101, clock=device):
        if isinstance(record, RoundVerified):
            total += record.seconds
        elif not device.batches:
            begin = device.now
        device.now += pause
    return total, device.free - begin


@pytest.mark.parametrize("pause", [0.0, 0.0005, 0.003, 100.0])
@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("kind", ["none", "model"])
def test_seconds_of_rounds_are_the_devices_own_and_a_reader_who_pauses_adds_none(
    kind: str, alone: bool, pause: float, target: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = FakeDevice(0.002)
    drafter = None if kind == "none" else ModelDrafter(target, 64)
    total, wall = timed(target, drafter, monkeypatch, pause, alone, device)
    assert total == pytest.approx(0.002 * sum(device.batches))
    if pause == 0.0:
        assert total == pytest.approx(wall)
    if alone and pause == 0.0005:  # all of it hidden but in the last rounds, which are not ahead
        assert wall < total + 0.01
    if not alone and pause == 0.0005:
        assert wall > total + 0.02


def test_a_run_that_is_left_waits_for_what_is_under_way(
    target: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run must not have it in its prefill's time."""
    device = FakeDevice(0.002)
    monkeypatch.setattr(FakeStretch, "device", device, raising=False)
    monkeypatch.setattr(device_round, "HostStretch", FakeStretch)
    programs = Programs(device.capture, lambda place: None)
    run = decoding(target, None, programs, alone=True, max_new_tokens=101, clock=device)
    assert isinstance(run, Generator)
    while not isinstance(next(run), RoundVerified):
        pass
    assert device.batches == [4, 4] and device.now == pytest.approx(0.008)
    run.close()
    assert device.now == device.free == pytest.approx(0.016)


def test_the_time_to_ask_for_rounds_counts_where_the_device_waits_for_it(
    target: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for alone in (False, True):
        device = FakeDevice(0.002, asking=0.0005)
        total, wall = timed(target, None, monkeypatch, 0.0, alone, device)
        batches = len(device.batches)
        assert total == pytest.approx(wall)
        assert total == pytest.approx(0.2 + 0.0005 * (1 if alone else batches), abs=0.0006)


def test_the_time_to_read_rounds_counts_where_the_device_waits_for_it(
    target: TransformersModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    for alone in (False, True):
        device = FakeDevice(0.002, reading=0.0001)
        total, _ = timed(target, None, monkeypatch, 0.0, alone, device)
        assert total == pytest.approx(0.2 + (0 if alone else 0.0001 * len(device.batches)))


def test_slow_rounds_are_read_one_by_one(target: TransformersModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_run, "SLOW", SLOW)
    for seconds, batches in ((0.014, [4] * 25), (0.016, [4, *[1] * 96])):
        device = FakeDevice(seconds)
        timed(target, None, monkeypatch, 0.0, False, device)
        assert device.batches == batches


def test_scores_that_are_kept_have_a_bound() -> None:
    assert [device_run._steps(*sizes) for sizes in ((0, 151_936), (3, 128_256), (8, 128_256), (32, 262_144))] == [
        4,
        4,
        4,
        1,
    ]
