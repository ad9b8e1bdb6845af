"""Rounds whose target is on a server, as charts, parts of the time and a table show them: by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from server_runs import call, drafting, figures_of, streamed, target
from widget_data import HostApp

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.tui.figures.chart_cells import compact_chart, full_chart
from specdec_tui.tui.figures.chart_layout import Chart
from specdec_tui.tui.figures.chart_lines import Line
from specdec_tui.tui.figures.columns import COLUMNS
from specdec_tui.tui.figures.comparison import ComparisonTable
from specdec_tui.tui.figures.scale import Scale, common_scale
from specdec_tui.tui.figures.time_lines import time_lines

SCALE = Scale(round_seconds=0.080)


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def latencies(run: RunFigures, width: int, baseline: RunFigures | None = None) -> list[str]:
    return texts(full_chart(Chart.LATENCY, run, run.window(), baseline, width, 6, SCALE))


def test_a_rounds_bar_has_the_way_as_its_last_part_and_each_part_its_own_number() -> None:
    title, *rows = latencies(drafting(), 110)  # a cell for each of 80 ms
    assert title.split()[-3:] == ["▒draft", "█server", "━wire"]
    assert rows[0] == "     37 " + ("▒" * 8 + "█" * 25 + "━" * 30).ljust(80) + "    8.0    25.0   30.0"
    assert rows[-1].split()[0] == "run" and rows[-1].split()[-3:] == ["8.0", "25.0", "30.0"]


def test_where_there_is_room_for_one_number_it_is_that_of_all_parts() -> None:
    title, *rows = latencies(drafting(), 42, target())
    assert title.startswith("▒draft █server ━wire") and title.endswith("ms")
    assert rows[0].split()[-1] == "63.0"
    assert "━" in rows[0] and "┃" in rows[0]


def test_in_one_row_the_mean_of_the_way_stands_beside_the_others() -> None:
    (line,) = texts([compact_chart(Chart.LATENCY, drafting(), None, 90, SCALE)])
    assert "draft 8.0 " in line and "server 25.0 " in line and "wire 30.0 " in line and "verify" not in line


def test_the_scale_of_all_panes_has_room_for_the_way() -> None:
    assert common_scale([drafting()], None).round_seconds == pytest.approx(0.1)  # 1.5 times 64 ms, rounded up


def test_the_time_view_tells_server_and_way_apart_and_from_which_latency_on_drafting_loses() -> None:
    lines = texts(time_lines(drafting(), target(), 4.0, 100, 14))
    rows = {line[2:17].strip(): line for line in lines if line[:1] in "▒█━░▄"}
    assert rows["server"].endswith("1.00 s  36 %  40 calls of 25 ms")
    assert rows["wire"].endswith("1.20 s  43 %  40 round trips of 30 ms")
    assert "drafting wins below 46 ms of latency (now 30 ms)" in " ".join(lines)
    lines = texts(time_lines(target(), target(), 4.0, 100, 14))
    assert any("160 tokens of 20 ms" in line for line in lines)
    assert "the baseline: a stream from the server, 20 ms a token" in lines


async def test_a_table_with_a_server_has_columns_for_the_way_and_for_calls_and_others_have_not() -> None:
    table, rows = ComparisonTable(), [("target", target(), None), ("speculative", drafting(), None)]
    async with HostApp(table, columns="-one").run_test(size=(240, 10)):
        table.show(rows)
        plain, fast = table.cells("target"), table.cells("speculative")
        assert (fast["wire"], plain["wire"]) == ("47%", "–")  # 30 of 64 ms
        assert (fast["calls/round"], plain["calls/round"]) == ("1.00", "–")
        assert fast["draft / server / wire / other"].endswith("/ 39% / 47% / 2%")
        assert (fast["speedup"], fast["predicted"], fast["c"], fast["v"]) == ("1.25×", "1.25×", "0.10", "2.80")
        here = [figures_of(name, rounds, gamma, by_calls=False) for name, rounds, gamma in local_runs()]
        table.show([(run.strategy, run, None) for run in here])
        assert list(table.cells("speculative")) == [column.title for column in COLUMNS]


def local_runs() -> list[tuple[str, list, int]]:
    """The same without a server."""
    calls = [replace(call(number, wire=0.0), calls=0) for number in range(40)]
    return [("target", [replace(streamed(number), calls=0) for number in range(160)], 0), ("speculative", calls, 4)]


def test_without_a_server_a_round_is_drawn_as_ever() -> None:
    run = figures_of(*local_runs()[1], by_calls=False)
    title, *rows = latencies(run, 64)
    assert title.split()[-2:] == ["▒draft", "█verify"] and rows[0].split()[-2:] == ["8.0", "25.0"]
    assert not any("━" in row for row in (title, *rows, *texts(time_lines(run, None, 4.0, 100, 14))))
