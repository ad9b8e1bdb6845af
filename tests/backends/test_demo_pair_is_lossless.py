"""The built-in pair in float32 on the CPU: every strategy writes exactly what the target writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specdec_tui.backends.loading import Pair
from specdec_tui.decoding.records import EMITTED, Checked, LosslessStatus, PrefillDone, RoundVerified, Step, tokens_of
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

COPYING = "Repeat this sentence twice, word for word: the cat sat on the mat and the dog lay on the rug."
SHORT = Settings(max_new_tokens=20, gamma=4, chat=True, strategies=("target", "speculative", "ngram", "lookup"))
NUCLEUS = replace(SHORT, processor="nucleus", temperature=0.7, top_p=0.9, rule="coupled")


@pytest.fixture
def engine(demo_pair: Pair, monkeypatch: pytest.MonkeyPatch) -> LocalEngine:
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: demo_pair)
    engine = LocalEngine()
    engine.load(ModelChoice(), lambda progress: None)
    return engine


@pytest.mark.parametrize(
    "settings",
    [
        SHORT,
        pytest.param(replace(SHORT, gamma=1, ngram_storage="onelevel", ngram_order=2), marks=pytest.mark.large),
        pytest.param(replace(SHORT, gamma=7, ngram_unknown="drafter", reset_in_between=False), marks=pytest.mark.large),
        pytest.param(replace(SHORT, gamma=0), marks=pytest.mark.large),
        replace(SHORT, schedule="interleaved", rule="block", insight=True),
        pytest.param(replace(SHORT, cache=False, max_new_tokens=8), marks=pytest.mark.large),
        NUCLEUS,
        pytest.param(replace(NUCLEUS, processor="topknucleus", gamma=7, seed=1), marks=pytest.mark.large),
        pytest.param(
            replace(NUCLEUS, processor="multinomial", temperature=1.0, gamma=2, top_k_filler=0), marks=pytest.mark.large
        ),
    ],
    ids=[
        "default",
        "gamma 1",
        "gamma 7",
        "no drafts",
        "interleaved",
        "no cache",
        "nucleus",
        "top-k + nucleus",
        "T = 1",
    ],
)
def test_every_strategy_is_identical_to_the_target(engine: LocalEngine, settings: Settings) -> None:
    ids: dict[str, list[int]] = {}
    drafted = 0
    for event in engine.run(COPYING, settings, lambda: False):
        if isinstance(event, Step) and isinstance(event.record, PrefillDone | RoundVerified):
            kept = ids.setdefault(event.strategy, [])
            kept += [t.id for t in tokens_of(event.record) if t.status in EMITTED]
            drafted += isinstance(event.record, RoundVerified) and len(event.record.drafts)
        if isinstance(event, Checked):
            assert event.lossless.status is LosslessStatus.IDENTICAL, (event.strategy, event.lossless)
    assert ids["speculative"] == ids["ngram"] == ids["lookup"] == ids["target"]
    assert len(ids["target"]) > 1 and (drafted > 0) == (settings.gamma > 0)
