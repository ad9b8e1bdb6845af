"""The table at the end."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from rich.cells import cell_len
from textual.color import Color
from widget_data import HostApp, painted, run_steps, strips_of, with_changed_pace, words_of

from specdec_tui.decoding.costs import costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import (
    EndReason,
    Lossless,
    LosslessStatus,
    PrefillDone,
    RoundVerified,
    RunEnded,
    Status,
    Step,
    Token,
)
from specdec_tui.decoding.standing import standing
from specdec_tui.tui.app.themes import TOKEN_DEFAULTS
from specdec_tui.tui.figures.comparison import COLUMNS, ComparisonTable, Row

TEXT = words_of("a b c d e f g h i j k l m n o p q r s t u v w x y z" * 4)


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


async def test_every_strategy_has_its_figures_and_the_fastest_a_star() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show(ROWS)
        target, fast, slow, other = (table.cells(name) for name, *_ in ROWS)
        assert target["speedup"] == "1.00×"
        assert target["lossless"] == "the reference"
        assert fast["strategy"] == "★ speculative"
        assert fast["lossless"] == "✓ identical to target"
        assert slow["speedup"].endswith("×, slower")
        assert slow["lossless"] == "≈ 2 near-ties (max gap 0.31)"
        assert other["lossless"] == "✗ DIFFERENT from token 17"
        assert sum("★" in table.cells(name)["strategy"] for name, *_ in ROWS) == 1
        base, run = ROWS[0][1], ROWS[1][1]
        assert fast["drafted"] == str(run.drafted)
        assert fast["accepted"] == str(run.accepted)
        assert fast["wasted"] == f"{run.wasted_rate:.0%}"
        assert fast["prefill s"] == "0.21"
        # Beside the measured speedup the predicted one, and what it comes from.
        assert fast["predicted"] == f"{costs(run, base).predicted_speedup:.2f}×"
        assert fast["c"] == f"{0.008 / 0.061:.2f}" and fast["v"] == "1.00"
        assert (target["predicted"], target["c"], target["v"]) == ("–", "–", "–")


async def test_nothing_faster_than_the_target_means_no_star() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show([ROWS[0], ROWS[2]])
        assert not any("★" in line for line in painted(table))


DISTURBED = [
    ("target", figures(run_steps("target", TEXT, gamma=0, round_seconds=0.171)), Lossless(LosslessStatus.IDENTICAL)),
    ("lookup", figures(run_steps("lookup", TEXT, alpha=0.2, round_seconds=0.057)), Lossless(LosslessStatus.IDENTICAL)),
    ("ngram", figures(run_steps("ngram", TEXT, alpha=0.8, round_seconds=0.171)), Lossless(LosslessStatus.IDENTICAL)),
]


async def test_an_impossible_speedup_has_neither_star_nor_green_but_an_interval_and_the_reason() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)) as pilot:
        table.show(DISTURBED)
        await pilot.pause()
        lookup, ngram = table.cells("lookup"), table.cells("ngram")
        assert "★" not in lookup["strategy"] and ngram["strategy"] == "★ ngram"
        assert re.fullmatch(r"[\d.]+–[\d.]+×, disturbed", lookup["speedup"])
        foot = painted(table)[4]
        assert "clock disturbed, r repeats · lookup: " in foot and "ms" in foot
        row = next(index for index, line in enumerate(painted(table)) if "lookup" in line)
        speed = next(segment for segment in strips_of(table)[row] if "disturbed" in segment.text)
        good = Color.parse(TOKEN_DEFAULTS["token-accepted"])
        assert speed.style is not None and speed.style.color is not None
        assert tuple(speed.style.color.get_truecolor()) != good.rgb
        table.show(DISTURBED, can_repeat=False)
        await pilot.pause()
        assert "clock disturbed · lookup" in painted(table)[4] and "r repeats" not in painted(table)[4]
        table.show([DISTURBED[0], DISTURBED[1]])
        assert not any("★" in line for line in painted(table))


@pytest.mark.parametrize("width", [60, 80, 120])
async def test_why_a_clock_is_disturbed_is_said_at_any_width_and_of_many_runs_how_many_more(width: int) -> None:
    """At 80 columns the reason was left out, and of several only the first was told."""
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(width, 16)) as pilot:
        table.show(DISTURBED[:2])
        await pilot.pause()
        foot = " ".join(line.strip() for line in painted(table)[3:]).strip()
        reason = standing(DISTURBED[1][1], DISTURBED[0][1])
        assert reason is not None and foot == f"clock disturbed, r repeats · lookup: {reason.reason}"
        many = [(f"lookup{number}", *DISTURBED[1][1:]) for number in range(6)]
        table.show([DISTURBED[0], *many])
        await pilot.pause()
        rows = [line for line in painted(table)[8:] if line]
        foot = " ".join(line.strip() for line in rows)
        told = foot.count(reason.reason)
        assert len(rows) <= 3 and told >= 1
        assert foot.endswith(f"+ {6 - told} more, each in its pane")


async def test_no_slower_run_has_the_star_where_the_fastest_is_not_sure_of_it() -> None:
    few = figures(run_steps("lookup", TEXT[:25], alpha=1.0))
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)) as pilot:
        table.show([*ROWS[:2], ("lookup", few, None)])
        await pilot.pause()
        assert table.cells("lookup")["speedup"] == "3.20×, too short"
        assert float(table.cells("speculative")["speedup"][:-1]) < 3.2
        assert not any("★" in line for line in painted(table))


async def test_no_slower_run_has_the_star_where_one_with_a_disturbed_clock_may_be_faster() -> None:
    """`ngram` had it at 1.31× above a `speculative` of 2.0–2.5×."""
    fast = figures(run_steps("lookup", TEXT, alpha=0.9, round_seconds=0.1))
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)) as pilot:
        table.show([DISTURBED[0], ("lookup", fast, None), DISTURBED[2]])
        await pilot.pause()
        told = re.fullmatch(r"([\d.]+)–[\d.]+×, disturbed", table.cells("lookup")["speedup"])
        assert told is not None and float(told[1]) > float(table.cells("ngram")["speedup"][:-1])
        assert not any("★" in line for line in painted(table))


async def test_runs_without_figures_show_dashes() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        failed = RunFigures()
        failed.add(RunEnded(EndReason.ERROR, "out of memory"))
        table.show([("speculative", failed, None), ("lookup", RunFigures(), None)])
        assert table.cells("speculative")["tok/s"] == "–"
        assert table.cells("speculative")["speedup"] == "–"
        assert table.cells("speculative")["lossless"] == "failed"
        assert table.cells("lookup")["lossless"] == "not checked"


@pytest.mark.each_value
@pytest.mark.parametrize("rows", [ROWS, DISTURBED], ids=["steady", "disturbed"])
@pytest.mark.parametrize("width", [1, 9, 30, *range(56, 210, 7), 80, 120, 200])
async def test_the_table_fits_its_width_and_cuts_no_column(rows: list[Row], width: int) -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(width, 12)) as pilot:
        table.show(rows)
        await pilot.pause()
        heading, *lines = painted(table)[: 1 + len(rows)]
        if width >= 30:
            assert table.max_scroll_x == 0 and all(cell_len(line) <= width for line in (heading, *lines))
        shown = [column.title for column in COLUMNS if f" {column.title} " in f"{heading} "]
        if width >= 56:
            wanted = ["strategy", "tok/s", "speedup", "α", "τ"]
            assert [title for title in shown if title in wanted] == wanted
            left_out = len(COLUMNS) - len(shown)
            assert (f"+{left_out}" in heading) == bool(left_out)
            for (name, *_), line in zip(rows, lines, strict=True):
                whole = table.cells(name)
                for title in set(shown) - {"lossless"}:
                    assert whole[title] in line
                if "lossless" in shown and name != "target":
                    assert whole["lossless"][:11].rstrip() in line


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (60, ["strategy", "tok/s", "speedup", "predicted", "α", "τ"]),
        (80, ["strategy", "tok/s", "speedup", "predicted", "α", "τ", "lossless"]),
        (120, ["strategy", "tok/s", "speedup", "predicted", "α", "τ", "c", "v", "lossless", "drafted"]),
        (200, [column.title for column in COLUMNS]),
    ],
)
async def test_columns_have_room_by_their_importance(width: int, columns: list[str]) -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(width, 12)) as pilot:
        table.show(ROWS[:3])
        await pilot.pause()
        heading = painted(table)[0]
        assert heading.replace("draft / verify / other", "draft/verify/other").replace(
            "prefill s", "prefill_s"
        ).split()[: len(columns)] == [title.replace(" / ", "/").replace(" s", "_s") for title in columns]
        await pilot.resize_terminal(200, 12)
        await pilot.pause()
        assert "draft / verify / other" in painted(table)[0]


DRAFTERS = {"drafter": "demo drafter", "speculative": "demo drafter", "drafter-beam": "demo drafter"}
DRAFTERS |= {"speculative-2": "tiny-llama", "speculative-3": "a-drafter-with-a-long-name"}
MANY = [
    *ROWS[:2],
    ("speculative-3", figures(run_steps("speculative-3", TEXT[:25], alpha=0.5)), None),
    *(("speculative-2" if row[0] == "lookup" else row[0], *row[1:]) for row in DISTURBED[1:]),
    *(
        (name, figures(run_steps(name, TEXT, alpha=0.5)), None)
        for name in ("drafter", "lookup", "beam", "drafter-beam")
    ),
]


@pytest.mark.parametrize("width", [40, 50, 60, 70, 80, 120])
async def test_what_the_table_is_for_has_room_before_anything_else_and_names_give_way_to_it(width: int) -> None:
    """At 60 columns names of drafters left no room for the speedup: α, τ and c stood in its place, at 40 α alone."""
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(width, 20)) as pilot:
        table.show(MANY, drafters=DRAFTERS)
        await pilot.pause()
        heading, *lines = painted(table)[: 1 + len(MANY)]
        assert " tok/s " in heading and " speedup " in heading
        for (name, *_), line in zip(MANY, lines, strict=True):
            told = table.cells(name)
            assert re.search(rf" {name} ", line) and cell_len(line) <= width
            assert f" {told['tok/s']} " in line and told["speedup"].split(",")[0] in line
            assert "too short" not in told["speedup"] or "short" in line
        assert (" · demo drafter " in lines[1]) == (width >= 60)


@pytest.mark.parametrize(("width", "height"), [(40, 7), (60, 9), (120, 12), (120, 20)])
async def test_rows_and_notes_that_have_no_room_are_counted_and_can_be_scrolled_to(width: int, height: int) -> None:
    """Rows below the fourth were nowhere, and notes ended at `drafter-beam: the`."""
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(width, height)) as pilot:
        table.show(MANY, drafters=DRAFTERS)
        await pilot.pause()
        everything = [line.plain.rstrip() for line in table._lines]
        seen = [line.rstrip() for line in painted(table)]
        assert table.overflows == (len(everything) > height)
        if not table.overflows:
            assert [line for line in seen if line] == everything
            return
        assert seen[:-1] == everything[: height - 1]
        assert seen[-1].startswith(f" ↓ {len(everything) - height + 1} more")
        for how, told in (("scroll_down", " ↑ 1 more"), ("page_down", " ↑ "), ("scroll_end", " ↑ ")):
            table.scroll(how)
            await pilot.pause()
            last = [line.rstrip() for line in painted(table)]
            assert last[0] == everything[0] and last[-1].startswith(told)
        assert last[1:-1] == everything[-(height - 2) :] and "↓" not in last[-1]
        table.scroll("page_up")
        table.scroll("scroll_home")
        await pilot.pause()
        assert [line.rstrip() for line in painted(table)] == seen


async def test_a_baseline_that_recomputes_or_is_of_another_time_is_said_below() -> None:
    table = ComparisonTable()
    recomputing = RunFigures()
    for step in run_steps("target", TEXT, gamma=0):
        record = step.record
        recomputing.add(replace(record, recomputes=True) if isinstance(record, PrefillDone) else record)
    async with HostApp(table, columns="-one").run_test(size=(120, 12)) as pilot:
        table.show([("target", recomputing, None), ROWS[1]])
        await pilot.pause()
        assert "† target recomputes its whole text" in painted(table)[3]
        assert table.cells("speculative")["speedup"].endswith("×†")
        assert not any("★" in line for line in painted(table))
        table.show([ROWS[1]], ROWS[0][1], "target of 17:31")
        await pilot.pause()
        assert "speedups vs. target of 17:31" in painted(table)[2]
        assert table.cells("speculative")["speedup"].endswith("×")
        table.show(ROWS, ROWS[0][1])
        await pilot.pause()
        assert len([line for line in painted(table) if line]) == 5


async def test_a_speedup_that_is_not_the_ratio_of_the_speeds_beside_it_is_marked_and_told() -> None:
    table = ComparisonTable()
    ahead = figures([*run_steps("speculative", TEXT[:60]), *slow_rounds(10)])
    async with HostApp(table, columns="-one").run_test(size=(120, 12)) as pilot:
        table.show([("target", figures(run_steps("target", TEXT[:60], gamma=0)), None), ("speculative", ahead, None)])
        await pilot.pause()
        assert table.cells("speculative")["speedup"].startswith("2.") and "×‡" in table.cells("speculative")["speedup"]
        assert "‡ over the text both have" in painted(table)[3]


@pytest.mark.parametrize("width", [60, 120])
async def test_where_step_times_vary_the_table_says_so_in_the_place_of_predicted_c_and_v(width: int) -> None:
    """They were dashes, and nothing said why."""
    rows = [
        (name, figures(with_changed_pace(run_steps(name, TEXT, alpha=0.9, gamma=gamma))), None)
        for name, gamma in (("target", 0), ("speculative", 4))
    ]
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(width, 12)) as pilot:
        table.show(rows)
        await pilot.pause()
        cells = table.cells("speculative")
        assert (cells["predicted"], cells["c"], cells["v"]) == ("–§",) * 3
        assert "disturbed" not in cells["speedup"], "the ratio stands"
        assert "§ step times vary: no predicted, c and v of speculative" in painted(table)[3]
        table.show(ROWS[:2])
        await pilot.pause()
        assert "§" not in "".join(painted(table))


def slow_rounds(count: int) -> list[Step]:
    one = RoundVerified(99, (), Token(2, Status.SAMPLED, 0), 0.0, 0.2, 0.0)
    return [Step("speculative", one)] * count


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
        await pilot.pause()

        def star() -> object:
            return next(part.style for part in strips_of(table)[2] if "★" in part.text)

        before = star()
        app.theme = "specdec-light"
        await pilot.pause()
        assert star() != before


async def test_a_target_without_a_measured_speed_has_no_ratio() -> None:
    table = ComparisonTable()
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show([("target", figures([Step("target", RunEnded(EndReason.CANCELLED))]), None)])
        assert table.cells("target")["speedup"] == "–"


async def test_the_drafters_own_run_is_fastest_and_gets_no_star() -> None:
    table = ComparisonTable()
    fast = figures(run_steps("drafter", TEXT, alpha=1.0))
    async with HostApp(table, columns="-one").run_test(size=(160, 10)):
        table.show([ROWS[0], ("drafter", fast, None), ROWS[2]])
        assert not any("★" in line for line in painted(table))
        table.show([ROWS[0], ("drafter", fast, None), ROWS[1]])
        stars = [table.cells(name)["strategy"].startswith("★") for name in ("target", "drafter", "speculative")]
        assert stars == [False, False, True]
