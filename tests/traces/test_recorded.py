"""The run that comes with the package."""

from __future__ import annotations

from specdec_tui.decoding.records import Checked, LosslessStatus, Status, Step, tokens_of
from specdec_tui.traces.recorded import RECORDED, recorded
from specdec_tui.traces.standings import standings


def test_the_recorded_run_is_small_shows_every_fate_and_has_steady_clocks() -> None:
    trace = recorded()
    assert RECORDED.stat().st_size < 65_000
    assert list(trace.strategies) == ["target", "drafter", "speculative", "ngram", "lookup"]
    told = [token.status for step in trace.events if isinstance(step, Step) for token in tokens_of(step.record)]
    assert set(told) == set(Status)
    found = standings(trace.header)
    assert not any(one.is_disturbed for one in found.values())
    assert found["speculative"].ratio > 1.1
    verdicts = {event.strategy: event.lossless.status for event in trace.events if isinstance(event, Checked)}
    assert {verdicts[name] for name in ("speculative", "ngram", "lookup")} == {LosslessStatus.IDENTICAL}
