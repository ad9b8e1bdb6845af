"""Where the time of a run went, by hand."""

from __future__ import annotations

import pytest
from test_figures import RUN

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import PrefillDone, RunStarted, Status, Token
from specdec_tui.decoding.shares import Part, shares


def test_the_parts_of_a_run_are_the_wall_of_its_own_clock() -> None:
    found = shares(RUN)
    by_hand = {Part.DRAFT: 0.3 + 0.3 + 0.9 + 0.2, Part.TARGET: 1.0 + 1.2 + 1.4 + 0.5 + 7.0, Part.REST: 0.5}
    by_hand |= {Part.WIRE: 0.0, Part.PREFILL: 0.5, Part.CAPTURE: 0.0}
    assert dict(found.parts) == pytest.approx(by_hand)
    assert found.total == pytest.approx(1.7 + 11.1 + 0.5 + 0.5)
    assert found.total == pytest.approx(RUN.decode_seconds + RUN.prefill_seconds)


def test_making_a_rounds_programs_is_a_part_of_its_own() -> None:
    run = RunFigures()
    run.add(RunStarted("speculative", 7, 3, 64))
    run.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.5, capture_seconds=2.5, captured=True))
    assert dict(shares(run).parts)[Part.CAPTURE] == 2.5 and shares(run).total == 3.0
    assert shares(RunFigures()).total == 0
