"""What is said of a run beside a pinned one, in table cells, in a pane's row and below the table."""

from __future__ import annotations

from dataclasses import replace

import pytest
from widget_data import HostApp, painted, run_steps, words_of

from specdec_tui.decoding.differences import Difference, Measured
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import EndReason, RunEnded, Step
from specdec_tui.tui.figures.comparison import ComparisonTable
from specdec_tui.tui.figures.pinned import (
    Changes,
    Made,
    Pinned,
    cell,
    change_text,
    changes_since,
    groups,
    note,
)
from specdec_tui.tui.figures.words import GOOD, QUIET, WARN, Part

PIECES = words_of("a b c d e f g h i j k l m n o p q r s t u v w x y z" * 8)
MADE = Made("why?", 64, ("target", "drafter"), "γ 4 · greedy · 64 tokens")


def figures(steps: list[Step]) -> RunFigures:
    found = RunFigures()
    for step in steps:
        found.add(step.record)
    return found


def runs(alpha: float, gamma: int = 4, **made: object) -> dict[str, Measured]:
    target = figures(run_steps("target", PIECES, gamma=0))
    run = figures(run_steps("speculative", PIECES, alpha=alpha, gamma=gamma, **made))  # type: ignore[arg-type]
    return {"target": Measured(target, target, "same"), "speculative": Measured(run, target, "same")}


PINNED = Pinned("A", "21:05", MADE, runs(0.3))
NOW = replace(MADE, settings="γ 8 · greedy · 64 tokens")


def said(parts: list[list[Part]]) -> str:
    return "  ".join("".join(text for text, _ in group) for group in parts)


def test_a_gain_beyond_the_noise_is_told_in_words_where_there_is_room_and_by_its_mark_where_not() -> None:
    found = Changes("A", {"tok/s": Difference(10.0, 10.4, 0.2), "α": Difference(0.5, 0.48, 0.1)}, praised=True)
    wide, narrow = groups(found, 120), groups(found, 40)
    assert said(wide) == "vs. A +0.4 tok/s ▲ beyond the noise  α −0.02 within the noise"
    assert said(narrow) == "vs. A +0.4 tok/s ▲  α −0.02 ≈"
    medium = Changes("A", {**found.figures, "speedup": Difference(1.2, 1.44, 0.1), "τ": Difference(2, 2.01, 0.2)})
    assert said(groups(medium, 80)) == (
        "vs. A +0.4 tok/s ▲, +0.24× ▲ beyond the noise  α −0.02, τ +0.01 within the noise"
    )
    styles = {text.strip(): style for group in wide for text, style in group}
    assert styles["+0.4"] == GOOD and styles["−0.02"] == QUIET
    assert cell(found, "tok/s") == ("+0.4 ▲", GOOD) and cell(found, "τ") == ("–", "")
    assert cell(found, "tok/s", with_noise=True)[0] == "+0.4 ±0.2 ▲"
    assert change_text("speedup", Difference(1.44, 1.40)) == "−0.04×"


def test_a_gain_of_a_run_whose_speedup_is_not_what_it_seems_is_never_green() -> None:
    figures = {"tok/s": Difference(10.0, 20.0, 0.2), "speedup": Difference(1.0, 2.0, 0.1)}
    assert all(style != GOOD for group in groups(Changes("A", figures), 200) for _, style in group)
    down = Changes("A", {"tok/s": Difference(10.0, 5.0, 0.2)}, praised=True)
    assert cell(down, "tok/s") == ("−5.0 ▼", WARN)


def test_clocks_that_cannot_be_compared_say_why_once_and_leave_the_other_figures() -> None:
    found = Changes(
        "A",
        {
            "tok/s": Difference(1, 2, why="clock disturbed"),
            "speedup": Difference(1, 2, why="clock disturbed"),
            "α": Difference(0.5, 0.9, 0.1),
        },
    )
    assert said(groups(found, 200)) == "vs. A α +0.40 ▲ beyond the noise  tok/s, speedup: clock disturbed"
    assert cell(found, "tok/s") == ("?", QUIET)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (replace(NOW, prompt="what?"), "another prompt"),
        (replace(NOW, length=32), "another length"),
        (NOW, ""),
        (replace(NOW, models=("target", "other drafter")), ""),
    ],
)
def test_figures_of_another_text_are_no_a_b_and_those_of_another_model_or_setting_are(made: Made, why: str) -> None:
    found = changes_since(PINNED, made, runs(0.8), ["speculative"])
    assert {one.why for one in found.values()} == {why}
    told = said(note(PINNED, made, found, (None, None)))
    assert "Δ vs. pinned A: γ 4 · greedy · 64 tokens · 21:05" in told
    assert ("? not comparable: " + why in told) == bool(why)
    assert ("other models: target + drafter then" in told) == (made.models != MADE.models)
    if not why:
        assert found["speculative"].mark("α") == "▲" and set(found["target"].figures) == {"tok/s"}


def test_stopped_runs_other_prompts_lengths_and_strategies_that_were_not_pinned_say_so() -> None:
    stopped = runs(0.8, end=RunEnded(EndReason.CANCELLED))
    assert changes_since(PINNED, NOW, stopped, [])["speculative"].why == "stopped"
    longer = runs(0.8, prompt_tokens=99)
    assert changes_since(PINNED, NOW, longer, [])["speculative"].why == "another prompt"
    more = {**runs(0.8), "lookup": Measured(figures(run_steps("lookup", PIECES, alpha=0.2)))}
    assert changes_since(PINNED, NOW, more, [])["lookup"].why == "not pinned"
    was_stopped = replace(PINNED, runs=stopped)
    assert changes_since(was_stopped, NOW, runs(0.9), [])["speculative"].why == "the pinned run stopped"


def test_the_pinned_run_itself_differs_from_nothing() -> None:
    assert changes_since(PINNED, MADE, runs(0.3), []) == {}
    assert said(note(PINNED, MADE, {}, (None, None))) == "pinned A: γ 4 · greedy · 64 tokens · 21:05: this run"


@pytest.mark.parametrize("width", [40, 80, 120, 200])
async def test_the_table_has_a_column_for_each_difference_before_what_is_not_compared(width: int) -> None:
    table = ComparisonTable()
    now = runs(0.8, gamma=8)
    found = changes_since(PINNED, NOW, now, ["speculative"])
    async with HostApp(table, columns="-one").run_test(size=(width, 12)) as pilot:
        rows = [(name, one.run, None) for name, one in now.items()]
        table.show(rows, changes=found, pinned=note(PINNED, NOW, found, (None, None)))
        await pilot.pause()
        cells = table.cells("speculative")
        for figure in ("tok/s", "speedup", "α", "τ"):
            assert cells[f"Δ {figure}"].endswith(("▲", "▼", "≈"))
        lines = painted(table)
        assert "Δ vs. pinned A: γ 4" in " ".join(lines[3:])
        heading = lines[0].split("  ")
        shown = [title.strip() for title in heading if title.strip()]
        if width >= 80:
            assert {"Δ tok/s", "Δ speedup", "Δ α", "Δ τ"} <= set(shown)
            assert all(len(line) <= width for line in lines)
        table.show(rows)
        await pilot.pause()
        assert "Δ" not in "\n".join(painted(table))
