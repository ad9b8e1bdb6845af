"""What-ifs in the app: from a token of a finished run, in a pane beside it, kept in its trace."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine, formed, info
from shell import ask, make_app, ready, toasts, until
from textual.pilot import Pilot

from specdec_tui.decoding.records import EndReason, Origin, RunEnded, RunStarted, Step
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.children import origins
from specdec_tui.traces.files import lines_that_read_back, read_trace, write_trace
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.program import keep_unfinished
from specdec_tui.tui.app.recordings import Replay
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.inspector.panel import look_at
from specdec_tui.tui.inspector.reasons import why
from specdec_tui.tui.panes.what_if_panes import passing

TWO = ("target", "speculative")


async def finished(pilot: Pilot[int], prompt: str = "why") -> None:
    app = pilot.app
    await ready(pilot)
    await ask(pilot, prompt)
    await until(pilot, lambda: app.recordings.trace is not None and app.header.state == "ready", "a run that is kept")


async def at(pilot: Pilot[int], strategy: str, position: int) -> None:
    """Inspect a token of a strategy."""
    pane = pilot.app.grid.panes[strategy]
    pilot.app.grid.go_to(strategy)
    pane.inspect(pane.run_log.find(position))
    await pilot.pause()


async def branched(pilot: Pilot[int], *keys: str) -> None:
    """Open the dialog, choose in it, and wait for the end of the what-if."""
    app, before = pilot.app, len(pilot.app.runs.engine._engine.asked)
    await pilot.press("b")
    await until(pilot, lambda: isinstance(app.screen, Palette), "the dialog")
    await pilot.press(*keys)
    await until(pilot, lambda: len(app.runs.engine._engine.asked) > before, "asked")
    await until(pilot, lambda: app.header.state == "ready", "ready again")


def typed(text: str) -> list[str]:
    return [{" ": "space", ".": "full_stop", "-": "minus"}.get(letter, letter) for letter in text]


async def test_a_what_if_stands_beside_its_run_and_in_its_trace() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        pane = app.grid.panes["speculative"]
        rejected = next(t for row in pane.run_log.rows for t in row.tokens if t.status.value == "rejected")
        await at(pilot, "speculative", rejected.position)
        await branched(pilot, *typed("gamma 2"), "enter")
        request = engine.asked[-1]
        assert request.origin == Origin("speculative", rejected.position, None, (("gamma", "2"),))
        assert request.settings.gamma == 2 and len(request.given) == rejected.position
        child = app.grid.panes["speculative~1"]
        assert list(app.grid.panes)[:4] == ["target", "drafter", "speculative", "speculative~1"] and child.display
        assert f" what-if of speculative at {rejected.position + 1}: gamma 2" in str(child.border_title)
        # The text that it was given, then its own: together the parent's, for this engine writes what it always does.
        assert child.token_view.layout_text.text.replace("▏", "") == pane.plain_text
        assert child.plain_text == pane.plain_text[-len(child.plain_text) :]
        assert child.told[0] is None, "no speedup is claimed"
        assert app.table.cells("speculative~1")["speedup"] == "what-if"
        assert not pane.inspecting
        first = look_at(child.run_log, child.run_log.first(), child.strategy, Settings())
        assert first is not None and f"the prompt and {rejected.position} kept tokens" in why(first).rule

        # A child of the child, with another token.
        await at(pilot, "speculative~1", rejected.position + 3)
        await branched(pilot, "enter")
        second = engine.asked[-1]
        assert second.origin.parent == "speculative~1" and second.origin.changes == (("gamma", "2"),)
        assert second.given[: rejected.position + 3] == tuple(1000 + place for place in range(rejected.position + 3))
        assert list(app.grid.panes)[3:5] == ["speculative~1", "speculative~2"]
        line = app.grid.panes["speculative~2"].run_log.emitted_ids()
        assert (
            list(line) == list(range(24)) and tuple(line[place] for place in range(len(second.given))) == second.given
        )

        await until(pilot, lambda: len(origins(read_trace(app.recordings.store.entries()[0].path))) == 2, "kept")
        trace = read_trace(app.recordings.store.entries()[0].path)
        assert trace.events == app.recordings.trace.events
        picture = child.token_view.layout_text.text
        # The parent's next run clears them.
        await pilot.press("r")
        await until(pilot, lambda: len(engine.runs) == 2 and app.header.state == "ready")
        assert not [name for name in app.grid.panes if "~" in name] and len(app.grid.shown) == 2
    replayed = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with replayed.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: "speculative~2" in replayed.grid.panes, "the panes of its what-ifs")
        await pilot.pause()
        assert replayed.grid.panes["speculative~1"].token_view.layout_text.text == picture
        assert [result.strategy for result in replayed.grid.results][:2] == list(TWO)
        replayed.action_race("8")
        assert not [name for name in replayed.grid.panes if "~" in name], "a race is of the runs"


@pytest.mark.large
async def test_at_most_three_stand_there_and_the_oldest_goes_but_stays_in_the_trace() -> None:
    app = make_app(strategies=TWO)
    async with app.run_test(size=(80, 24)) as pilot:
        await finished(pilot)
        for number, position in enumerate((3, 5, 7, 9), 1):
            await at(pilot, "speculative", position)
            await branched(pilot, *typed("temperature 0.5"), "enter")
            assert app.grid.front is app.grid.panes[f"speculative~{number}"]
        assert [name for name in app.grid.panes if "~" in name] == [f"speculative~{n}" for n in (4, 3, 2)]
        assert sorted(origins(app.recordings.trace)) == [f"speculative~{n}" for n in (1, 2, 3, 4)]
        changes = origins(app.recordings.trace)["speculative~4"].changes
        assert changes == (("temperature", "0.5"), ("processor", "multinomial"))
        # Opened again the trace shows the same three, and the first has had no pane on the way.
        shown = {
            name: (str(pane.border_title), pane.plain_text) for name, pane in app.grid.panes.items() if "~" in name
        }
        assert passing(app.recordings.trace.events) == {"speculative~1"}
        app.recordings.show(app.recordings.trace)
        await until(pilot, lambda: not app.stage.is_filling)
        again = {
            name: (str(pane.border_title), pane.plain_text) for name, pane in app.grid.panes.items() if "~" in name
        }
        assert again == shown
        # Of what draws: what has no use for a setting is another processor then, and the dialog does not say "now".
        await at(pilot, "speculative~4", 12)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        listed = {row.text: row.help for row in app.screen._rows_for("top-")}
        assert listed["top-k"].endswith("multinomial has no use for it") and "now" not in listed["top-p"]
        await pilot.press("escape")
        await branched(pilot, *typed("top-k 5"), "enter")
        processor = ("temperature", "0.5"), ("processor", "topk"), ("top_k", "5")
        assert app.runs.engine._engine.asked[-1].origin.changes == processor
        await at(pilot, "speculative~3", 9)
        await pilot.press("b", *typed("temperature 0"), "enter")
        await until(pilot, lambda: "speculative~6" in app.grid.panes and app.header.state == "ready")
        await at(pilot, "speculative~6", 12)
        asked = len(app.runs.engine._engine.asked)
        await pilot.press("b", *typed("min-p 0.1"), "enter")
        await until(pilot, lambda: any("min-p would change nothing" in said for said in toasts(app)))
        assert len(app.runs.engine._engine.asked) == asked
        await at(pilot, "speculative~4", 9)  # its pane goes as its child's comes
        await branched(pilot, "enter")
        assert [name for name in app.grid.panes if "~" in name] == ["speculative~7", "speculative~6", "speculative~5"]
        assert app.grid.panes["speculative~7"].run_log.given == app.runs.engine._engine.asked[-1].given
        await pilot.resize_terminal(40, 12)
        await pilot.resize_terminal(4, 4)


async def test_what_cannot_be_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine, strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        engine.step(6)
        await until(pilot, lambda: app.grid.panes["target"].run_log.last() is not None)
        await at(pilot, "target", 0)
        app.action_branch()
        assert "A run is at work" in toasts(app)[-1]
        engine.step(200)
        await until(pilot, lambda: app.recordings.trace is not None and app.header.state == "ready")
        app.inspection.close()
        app.action_branch()
        assert "i inspects one" in toasts(app)[-1]
        await at(pilot, "target", 23)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.press("enter")
        assert "length 24 leaves no token behind this one" in toasts(app)[-1]
        monkeypatch.setattr(app.runs, "pair", info("another-target"))
        app.action_branch()
        assert "m loads that pair" in toasts(app)[-1]
        monkeypatch.setattr(app.runs, "pair", None)
        app.action_branch()
        assert "m loads models" in toasts(app)[-1]
        assert engine.asked == []


async def test_a_stop_keeps_the_text_and_an_error_is_told() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, strategies=TWO, max_new_tokens=60)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        engine.gated = True
        await at(pilot, "target", 4)
        await pilot.press("b")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.press(*typed("seed 1"), "enter")
        engine.step(3)
        await until(pilot, lambda: "target~1" in app.grid.panes and app.grid.panes["target~1"].figures.rounds == 3)
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.header.state == "ready")
        ends = [e.record for e in app.recordings.trace.events if isinstance(e, Step) and e.strategy == "target~1"]
        assert isinstance(ends[-1], RunEnded) and ends[-1].reason is EndReason.CANCELLED
        assert app.grid.panes["target~1"].plain_text
        engine.gated, engine.run_error = False, ValueError("these models read the prompt as 2 tokens, not the 12")
        await at(pilot, "target", 4)
        await branched(pilot, *typed("seed 2"), "enter")
        await until(pilot, lambda: any("not the 12" in said for said in toasts(app)))
        assert len(origins(app.recordings.trace)) == 1


async def test_a_full_disk_leaves_the_old_file_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    app = make_app(strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        await until(
            pilot, lambda: app.recordings.store.entries() and app.recordings.store.entries()[0].header is not None
        )
        path = app.recordings.store.entries()[0].path
        await until(pilot, lambda: read_trace(path).events == app.recordings.trace.events, "written")
        before = path.read_bytes()

        def full(source: object, target: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr("specdec_tui.doors.writing.os.replace", full)
        await at(pilot, "speculative", 5)
        await branched(pilot, *typed("gamma 1"), "enter")
        await until(pilot, lambda: any("the what-if is not kept" in said for said in toasts(app)), "said")
        assert path.read_bytes() == before
        assert "speculative~1" in origins(app.recordings.trace), "the panes and exports have it all the same"


async def test_a_what_if_of_an_opened_trace_joins_its_file() -> None:
    app = make_app(strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        await until(
            pilot, lambda: app.recordings.store.entries() and app.recordings.store.entries()[0].header is not None
        )
        path = app.recordings.store.entries()[0].path
        await until(pilot, lambda: read_trace(path).events == app.recordings.trace.events, "written")
        app.recordings.open_file(path)
        await until(pilot, lambda: bool(app.recordings.opened) and not app.stage.is_filling, "opened")
        # From the first token on and with another γ alone, as those of a sweep are: it is a person's own all the same.
        await at(pilot, "speculative", 0)
        await branched(pilot, *typed("gamma 2"), "enter")
        await until(pilot, lambda: "speculative~1" in origins(read_trace(path)), "kept")
        kept = read_trace(path)
        assert origins(kept)["speculative~1"] == Origin("speculative", 0, None, (("gamma", "2"),))
        assert "speculative~1" in kept.header.strategies
        # It is the file of the run that was made here: what is added to that one later leaves nothing out.
        assert app.recordings.leave()
        await until(
            pilot, lambda: "speculative~1" in app.grid.panes and not app.stage.is_filling, "it has its pane again"
        )
        await at(pilot, "speculative", 7)
        await branched(pilot, *typed("gamma 1"), "enter")
        await until(pilot, lambda: list(origins(read_trace(path))) == ["speculative~1", "speculative~2"], "both")


async def kept(pilot: Pilot[int]) -> Path:
    """The file of the run that was just made, once it is whole."""
    store, trace = pilot.app.recordings.store, pilot.app.recordings.trace
    await until(pilot, lambda: store.entries() and store.entries()[0].header is not None)
    path = store.entries()[0].path
    await until(pilot, lambda: read_trace(path).events == trace.events, "written")
    return path


async def begun(pilot: Pilot[int], engine: ScriptedEngine, text: str) -> None:
    """A what-if of which two rounds have passed."""
    await pilot.press("b")
    await until(pilot, lambda: isinstance(pilot.app.screen, Palette), "the dialog")
    await pilot.press(*typed(text), "enter")
    engine.step(2)
    grid = pilot.app.grid
    await until(pilot, lambda: any("~" in name and pane.figures.rounds == 2 for name, pane in grid.panes.items()))


async def test_a_what_if_joins_the_trace_that_it_was_begun_in_whatever_the_panes_show_when_it_ends(
    tmp_path: Path,
) -> None:
    engine = ScriptedEngine()
    app = make_app(engine, strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        own = await kept(pilot)
        older = tmp_path / "older.jsonl"
        trace = read_trace(own)
        write_trace(older, replace(trace, header=replace(trace.header, prompt="an older one")))
        before = own.read_bytes()
        app.recordings.open_file(older)
        await until(pilot, lambda: bool(app.recordings.opened) and not app.stage.is_filling, "opened")
        engine.gated = True
        await at(pilot, "speculative", 5)
        await begun(pilot, engine, "gamma 1")
        assert app.recordings.leave()
        await until(pilot, lambda: not app.stage.is_filling)
        engine.step(100)
        await until(pilot, lambda: "speculative~1" in origins(read_trace(older)), "in its own file")
        assert own.read_bytes() == before and not origins(app.recordings.trace)
        assert not [name for name in app.grid.panes if "~" in name], "nor is it among the panes of another run"
        assert "speculative~1" not in app.grid._checked, "which hear nothing of it"
        assert any("in the trace that it was begun in" in said for said in toasts(app))


async def test_no_file_is_replaced_by_what_could_not_be_read_again() -> None:
    app = make_app(strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        path = await kept(pilot)
        before = path.read_bytes()
        await at(pilot, "speculative", 5)
        await branched(pilot, *typed("gamma 1"), "enter")
        await until(pilot, lambda: path.read_bytes() != before, "joined")
        before, events = path.read_bytes(), app.recordings.trace.events
        again = [event for event in events if getattr(event, "strategy", "") == "speculative~1"]
        app.recordings.keep_what_ifs(again, app.recordings.home())  # a run that is there already
        await until(pilot, lambda: any("could not be read again" in said for said in toasts(app)), "said")
        assert path.read_bytes() == before


async def test_a_what_if_whose_file_is_gone_is_kept_anew_with_its_run() -> None:
    app = make_app(strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        (await kept(pilot)).unlink()
        app.recordings.store.folder.rmdir()
        await at(pilot, "speculative", 5)
        await branched(pilot, *typed("gamma 1"), "enter")
        path = await kept(pilot)
        assert list(origins(read_trace(path))) == ["speculative~1"]


async def test_a_what_if_at_work_when_the_app_is_left_is_kept_as_far_as_it_went() -> None:
    engine = ScriptedEngine()
    app = make_app(engine, strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        path = await kept(pilot)
        engine.gated = True
        await at(pilot, "speculative", 5)
        await begun(pilot, engine, "gamma 1")
        assert keep_unfinished(app) == ""
        trace = read_trace(path)
        own = [e.record for e in trace.events if isinstance(e, Step) and e.strategy == "speculative~1"]
        assert isinstance(own[-1], RunEnded) and own[-1].reason is EndReason.CANCELLED and len(own) > 4
        assert lines_that_read_back(trace)
        engine.step(100)


@pytest.mark.parametrize(
    ("changes", "said"),
    [((("gamma", "banana"),), "'banana' is not valid"), ((("later", "1"),), "that this version does not know")],
)
async def test_a_child_with_settings_that_are_not_valid_here_is_shown_and_no_what_if_begins(
    changes: tuple[tuple[str, str], ...], said: str
) -> None:
    app = make_app(strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        await at(pilot, "speculative", 5)
        await branched(pilot, *typed("gamma 1"), "enter")

        def altered(event: object) -> object:
            record = getattr(event, "record", None)
            if not isinstance(record, RunStarted) or record.origin is None:
                return event
            return replace(event, record=replace(record, origin=replace(record.origin, changes=changes)))

        trace = app.recordings.trace
        app.recordings.show(replace(trace, events=tuple(map(altered, trace.events))))
        await until(pilot, lambda: not app.stage.is_filling)
        assert " ".join(changes[0]) in str(app.grid.panes["speculative~1"].border_title)
        await at(pilot, "speculative~1", 7)
        await pilot.press("b")
        assert any("speculative~1 cannot be gone on from" in toast and said in toast for toast in toasts(app))
        assert not isinstance(app.screen, Palette)


def test_of_many_what_ifs_those_that_stay_and_what_they_go_back_to_have_panes() -> None:
    def begins(name: str, parent: str) -> Step:
        return Step(name, RunStarted("speculative", 12, 4, 20, origin=Origin(parent, 2, None, (("gamma", "1"),))))

    chain = [begins(f"speculative~{n}", "speculative" if n < 2 else f"speculative~{n - 1}") for n in (1, 2)]
    others = [begins(f"speculative~{n}", "speculative") for n in range(3, 9)]
    last = begins("speculative~9", "speculative~2")
    assert passing([*chain, *others, last]) == {f"speculative~{n}" for n in range(3, 7)}


async def test_two_panes_show_both_forms_of_the_weights_by_one_command() -> None:
    engine = ScriptedEngine(pair=formed())
    app = make_app(engine, strategies=TWO)
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        assert "float32 (packed)" in str(app.header.render())
        app.grid.go_to("speculative")
        await pilot.pause()
        await pilot.press("escape", "ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, Palette))
        await pilot.press(*[{":": "colon"}.get(key, key) for key in typed("what if: weights expanded")], "enter")
        await until(pilot, lambda: "speculative~1" in app.grid.panes and app.header.state == "ready")
        request = engine.asked[-1]
        assert request.origin == Origin("speculative", 0, None, (("weights", "expanded"),))
        assert request.weights == "expanded" and not request.given
        child = app.grid.panes["speculative~1"]
        assert " what-if of speculative at 1: weights expanded" in str(child.border_title)
        assert child.plain_text == app.grid.panes["speculative"].plain_text
        app.inspection.go_to_difference(child)
        assert "speculative~1 and speculative are equal" in toasts(app)[-1]
        # Of that one with another γ: in its form; and back in the form of the run.
        await at(pilot, "speculative~1", 4)
        await branched(pilot, *typed("gamma 2"), "enter")
        assert engine.asked[-1].weights == "expanded"
        assert engine.asked[-1].origin.changes == (("gamma", "2"), ("weights", "expanded"))
        await at(pilot, "speculative~2", 6)
        await branched(pilot, *typed("weights packed"), "enter")
        assert engine.asked[-1].weights == "packed" and engine.asked[-1].origin.changes == (("gamma", "2"),)
        assert engine.asked[-1].given[4:6] == (1004, 1005)
        app.inspection.close()
        count = len(engine.asked)
        for words, said in (
            ("weights packed", "That is what the run was made with"),
            ("theme specdec-light", "'theme specdec-light' is no setting that a text follows from"),
            ("gamma 40", "gamma: '40' is not valid"),
        ):
            app.grid.go_to("speculative")
            await pilot.pause()
            app.action_what_if(words)
            await until(pilot, lambda said=said: any(said in toast for toast in toasts(app)), said)
        assert len(engine.asked) == count
        await until(pilot, lambda: len(origins(read_trace(app.recordings.store.entries()[0].path))) == 3, "kept")
        kept = read_trace(app.recordings.store.entries()[0].path)
        assert origins(kept)["speculative~1"].changes == (("weights", "expanded"),)
        assert kept.header.models["target"]["weights"] == "packed"


async def test_keys_go_to_a_what_if_that_hides_the_pane_they_went_to() -> None:
    app = make_app(ScriptedEngine(), strategies=TWO)
    async with app.run_test(size=(80, 24)) as pilot:
        await finished(pilot)
        app.grid.go_to("speculative")
        await pilot.pause()
        app.action_what_if("gamma 2")
        await until(pilot, lambda: "speculative~1" in app.grid.panes and app.header.state == "ready")
        child = app.grid.panes["speculative~1"]
        assert app.grid.front is child
        await until(pilot, lambda: app.grid.current is child, "the focus")
        await pilot.press("v")
        assert (child.view, app.grid.panes["speculative"].view) == ("rounds", "text")
        # From the prompt nobody is in a pane: what is typed there stays there.
        await pilot.press("slash")
        app.action_what_if("gamma 3")
        await until(pilot, lambda: "speculative~2" in app.grid.panes and app.header.state == "ready")
        await pilot.pause()
        assert app.grid.front is app.grid.panes["speculative~2"] and app.grid.focused is None


async def test_a_run_of_another_form_than_the_loaded_one_is_gone_on_with_in_its_own() -> None:
    engine = ScriptedEngine(pair=formed("packed-int8"))
    app = make_app(engine, strategies=("target", "drafter"))
    async with app.run_test(size=(120, 40)) as pilot:
        await finished(pilot)
        app.runs.pair = formed("expanded")
        app.grid.go_to("target")
        await pilot.pause()
        app.action_what_if("gamma 2")
        await until(pilot, lambda: len(engine.asked) == 1 and app.header.state == "ready")
        assert engine.asked[-1].weights == "packed-int8"
        app.grid.go_to("drafter")
        await pilot.pause()
        app.action_what_if("weights packed")
        await until(pilot, lambda: any("this run is of the drafter alone" in toast for toast in toasts(app)))
        app.action_what_if()
        await until(pilot, lambda: isinstance(app.screen, Palette), "a dialog of settings")
