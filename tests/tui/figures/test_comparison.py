"""The table at the end."""

from __future__ import annotations

from widget_data import HostApp, painted, run_steps, words_of

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import EndReason, Lossless, LosslessStatus, RunEnded, Step
from specdec_tui.tui.figures.comparison import COLUMNS, ComparisonTable

TEXT = words_of("a b c d e f g h i j k l m n o p q r s t u v w x y z")


def figures(steps: list[Step]) -> RunFigures:
    found = RunFigures()
    for step in steps:
        found.add(step.record)
    return found


ROWS = [
    ("target", figures(run_steps("target", TEXT, gamma=0)), Lossless(LosslessStatus.IDENTICAL)),
    ("speculative", figures(run_steps("speculative", TEXT, alpha=0.9)), Lossless(LosslessStatus.IDENTICAL)),
    ("ngram", figures(run_steps("ngram", TEXT, alpha=0.0)), Lossless(LosslessStatus.NEAR_TIES, 2, gap=0.31)),
    ("lookup", figures(run_steps("lookup", TEXT, alpha=0.5)), Lossless(LosslessStatus.DIFFERENT, 0, 16)),
]


def cells(table: ComparisonTable, row: int) -> dict[str, str]:
    return dict(zip(COLUMNS, (cell.plain.strip() for cell in table.get_row_at(row)), strict=True))


async def test_every_strategy_has_its_figures_and_the_fastest_a_star() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show(ROWS)
        target, fast, slow, other = (cells(table, row) for row in range(4))
        assert target["speedup"] == "1.00×"
        assert target["lossless"] == "the reference"
        assert fast["strategy"] == "★ speculative"
        assert fast["lossless"] == "✓ identical to target"
        assert slow["speedup"].endswith("slower")
        assert slow["lossless"] == "≈ 2 near-ties (max gap 0.31)"
        assert other["lossless"] == "✗ DIFFERENT from token 17"
        assert sum("★" in cells(table, row)["strategy"] for row in range(4)) == 1
        run = ROWS[1][1]
        assert fast["drafted"] == str(run.drafted)
        assert fast["accepted"] == str(run.accepted)
        assert fast["wasted"] == f"{run.wasted_rate:.0%}"
        assert fast["prefill s"] == "0.21"


async def test_nothing_faster_than_the_target_means_no_star() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show([ROWS[0], ROWS[2]])
        assert all("★" not in cells(table, row)["strategy"] for row in range(2))


async def test_runs_without_figures_show_dashes() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        failed = RunFigures()
        failed.add(RunEnded(EndReason.ERROR, "out of memory"))
        table.show([("speculative", failed, None), ("lookup", RunFigures(), None)])
        assert cells(table, 0)["tok/s"] == "–"
        assert cells(table, 0)["speedup"] == "–"
        assert cells(table, 0)["lossless"] == "failed"
        assert cells(table, 1)["lossless"] == "not checked"


async def test_eighty_columns_show_speed_and_verdict_and_scroll_to_the_rest() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(80, 10)) as pilot:
        table.show(ROWS)
        await pilot.pause()
        top = painted(table)[0]
        assert all(column in top for column in ("strategy", "tok/s", "speedup", "α", "τ", "lossless"))
        table.scroll_to(x=table.max_scroll_x, animate=False)
        await pilot.pause()
        assert painted(table)[0].startswith(" strategy")
        assert "draft / verify / other" in painted(table)[0]


async def test_hostile_names_are_shown_as_they_are() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(120, 10)) as pilot:
        table.show([("[/x][red]\x1b]0;hi\x07", ROWS[1][1], None)])
        await pilot.pause()
        assert "[/x][red]␛]0;hi␇" in painted(table)[1]


async def test_a_new_theme_recolours_the_table() -> None:
    table = ComparisonTable()
    app = HostApp(table, columns="-one")
    async with app.run_test(size=(120, 10)) as pilot:
        table.show(ROWS)
        before = table.get_row_at(1)[0].style
        app.theme = "specdec-light"
        await pilot.pause()
        assert table.get_row_at(1)[0].style != before


async def test_a_target_without_a_measured_speed_has_no_ratio() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show([("target", figures([Step("target", RunEnded(EndReason.CANCELLED))]), None)])
        assert cells(table, 0)["speedup"] == "–"


async def test_the_drafters_own_run_is_fastest_and_gets_no_star() -> None:
    table = ComparisonTable()
    fast = figures(run_steps("drafter", TEXT, alpha=1.0))
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show([ROWS[0], ("drafter", fast, None), ROWS[2]])
        assert not any("★" in cells(table, row)["strategy"] for row in range(3))
        table.show([ROWS[0], ("drafter", fast, None), ROWS[1]])
        assert [cells(table, row)["strategy"].startswith("★") for row in range(3)] == [False, False, True]
