from __future__ import annotations

from pathlib import Path

import pytest

from specdec_tui.glossary import FATES, FIGURES
from specdec_tui.settings import FIELDS, ModelChoice, Settings
from specdec_tui.tui.commands import palette_rows
from specdec_tui.tui.commands.palette_rows import Act, Ask, Change, Refuse, Row, rows_for
from specdec_tui.tui.commands.table import COMMANDS


def rows(query: str) -> list[Row]:
    return rows_for(query, Settings(), ModelChoice())


@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("gamma 8", {"gamma": 8}),
        ("length 200", {"max_new_tokens": 200}),
        ("max-new-tokens 200", {"max_new_tokens": 200}),
        ("processor nucleus 0.7 0.9", {"processor": "nucleus", "temperature": 0.7, "top_p": 0.9}),
        ("processor topknucleus 1 40 0.8", {"processor": "topknucleus", "temperature": 1.0, "top_k": 40, "top_p": 0.8}),
        ("temperature 0.7", {"temperature": 0.7}),
        ("top-k 20", {"top_k": 20}),
        ("top_p 0.5", {"top_p": 0.5}),
        ("seed 7", {"seed": 7}),
        ("rule block", {"rule": "block"}),
        ("schedule interleaved", {"schedule": "interleaved"}),
        ("cache off", {"cache": False}),
        ("capture off", {"capture": False}),
        ("chat off", {"chat": False}),
        ("insight on", {"insight": True}),
        ("ngram-storage onelevel 4", {"ngram_storage": "onelevel", "ngram_order": 4}),
        ("ngram-storage basic", {"ngram_storage": "basic"}),
        ("top-k-filler 3", {"top_k_filler": 3}),
        ("reset-in-between off", {"reset_in_between": False}),
        ("strategies target,lookup", {"strategies": ("target", "lookup")}),
        ("device cuda", {"device": "cuda"}),
        ("dtype bfloat16", {"dtype": "bfloat16"}),
        ("quantize int8", {"quantize": "int8"}),
        ("preset gpt2", {"preset": "gpt2"}),
        ("target some/model", {"target": "some/model"}),
        ("drafter none", {"drafter": ("none",)}),
        ("theme specdec-light", {"theme": "specdec-light"}),
    ],
)
def test_a_typed_argument_is_the_first_row(query: str, values: dict[str, object]) -> None:
    assert rows(query)[0].does == Change(values)


@pytest.mark.parametrize(
    "query", ["gamma x", "gamma 33", "processor best", "processor greedy 1", "cache maybe", "preset llama9"]
)
def test_a_bad_value_is_a_row_that_says_what_is_allowed_and_does_nothing(query: str) -> None:
    first = rows(query)[0]
    assert isinstance(first.does, Refuse)
    assert first.does.message == first.help


@pytest.mark.parametrize("name", FIELDS)
def test_every_setting_is_found_by_its_name_and_leads_to_a_list_of_values(name: str) -> None:
    word = FIELDS[name].metadata.get("palette", name.replace("_", "-"))
    asked = [row.does for row in rows(word) if isinstance(row.does, Ask) and row.text == word]
    assert asked == [Ask(f"{word} ")]
    assert rows(f"{word} ")


@pytest.mark.parametrize("name", FIELDS)
def test_every_listed_value_is_valid_and_the_present_one_is_marked(name: str) -> None:
    word = FIELDS[name].metadata.get("palette", name.replace("_", "-"))
    values = [row for row in rows(f"{word} ") if not isinstance(row.does, Refuse | Act)]
    for row in values:
        assert isinstance(row.does, Change)
        assert rows(row.text)[0].does == row.does


def test_a_strategy_name_alone_toggles_it_first() -> None:
    for name in ("target", "drafter", "speculative", "ngram", "lookup"):
        assert rows(name)[0].does == Act(f"toggle_strategy('{name}')")
        assert rows(f"toggle {name}")[0].does == Act(f"toggle_strategy('{name}')")


def test_an_unknown_word_finds_nothing() -> None:
    assert rows("xyzzy") == []
    assert rows("qqq gamma") == []


@pytest.mark.parametrize("word", ["run", "new chat", "models", "view", "table", "quit", "help", "stop", "settings"])
def test_commands_are_found_by_their_names(word: str) -> None:
    expected = next(command.action for command in COMMANDS if command.name == word)
    assert rows(word)[0].does == Act(expected)


def test_the_beginning_of_a_word_is_enough() -> None:
    assert rows("gam")[0].does == Ask("gamma ")
    assert rows("quantiz")[0].does == Ask("quantize ")


def test_nothing_destructive_comes_first_in_the_empty_palette() -> None:
    assert rows("")[0].does == Act("help")
    assert rows("  ")[0].does == Act("help")


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("dark", "theme specdec-dark"),
        ("light", "theme specdec-light"),
        ("colour", "theme"),
        ("color", "theme"),
        ("clear", "new chat"),
        ("γ", "gamma"),
        ("temp", "temperature"),
        ("nucleus", "processor nucleus"),
        ("block", "rule block"),
        ("charts", "view charts"),
        ("why", "inspect"),
        ("zoom", "maximise"),
        ("bigger", "maximise"),
        ("figures", "table"),
        ("speedup", "table"),
        ("baseline", "toggle target"),
        ("stats", "table"),
        ("exit", "quit"),
        ("conversation", "new chat"),
        ("alternatives", "inspect"),
        ("draft tokens", "gamma"),
        ("prct", "processor"),
        ("tempature", "temperature"),
        ("gamma8", "gamma"),
        ("explain", "inspect"),
        ("clipboard", "copy"),
        ("deterministic", "processor"),
        ("random", "processor"),
        ("gguf", "models"),
        ("image", "export"),
        ("4bit", "quantize"),
        ("legend", "help"),
        ("τ", "help"),
        ("acceptance", "table"),
        ("residual", "inspect"),
        ("disturbed", "run again"),
    ],
)
def test_any_word_and_common_other_words_find_it(query: str, text: str) -> None:
    assert text in [row.text for row in rows(query)]


@pytest.mark.parametrize(
    ("value", "text"),
    [("greedy", "processor greedy"), ("coupled", "rule coupled"), ("sequential", "schedule sequential")],
)
def test_the_whole_name_of_a_value_is_its_row_before_those_that_only_tell_of_it(value: str, text: str) -> None:
    """`greedy` and enter asked for a temperature, whose help names it."""
    assert rows(value)[0].text == text


@pytest.mark.parametrize("word", [*FIGURES, *FATES, "predicted", "lossless", "prefill", "raw", "drafted", "wasted"])
def test_words_on_the_screen_find_something(word: str) -> None:
    found = rows(word)
    assert found and not found[0].by_choice
    assert word != "γ" or found[0].text == "gamma"


@pytest.mark.parametrize(
    ("query", "does"),
    [
        ("γ 5", Change({"gamma": 5})),
        ("T 0.5", Change({"temperature": 0.5})),
        ("speed 0.5", Act("race('0.5')")),
        ("graph off", Change({"capture": False})),
        ("tokens 64", Change({"max_new_tokens": 64})),
        ("export picture a.svg", Act("export('picture a.svg')")),
    ],
)
def test_an_argument_may_follow_another_word_for_it(query: str, does: object) -> None:
    assert rows(query)[0].does == does


@pytest.mark.parametrize(
    "query",
    [
        *("race 500", "race fast", "view foo", "export pdf", "export pdf a.pdf", "open trace /no/such.jsonl"),
        *(f"open trace {'long' * 100}", "open trace /dev/null", "open trace /"),
    ],
)
def test_a_bad_argument_of_a_command_is_refused_as_one_types(query: str) -> None:
    first = rows(query)[0]
    assert isinstance(first.does, Refuse) and first.does.message == first.help
    assert "give" in first.help


@pytest.mark.parametrize("length", [1, 2, 3])
def test_the_first_letters_of_what_cannot_be_undone_do_not_choose_it(length: int) -> None:
    for command in (command for command in COMMANDS if command.is_final):
        first = rows(command.name[:length])[0]
        assert first.by_choice or first.does != Act(command.action)
        assert rows(command.name)[0].does == Act(command.action)


def test_a_guess_is_never_chosen_by_enter_alone() -> None:
    assert rows("prct") and all(row.by_choice for row in rows("prct"))


def test_hostile_words_are_only_text() -> None:
    assert isinstance(rows("gamma [/x]\x1b[31m")[0].does, Refuse)


def test_words_that_are_too_long_to_be_meant_cost_no_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [row.text for row in rows("tmeprature")] == ["temperature"]
    compared: list[str] = []
    monkeypatch.setattr(palette_rows.SequenceMatcher, "ratio", lambda matcher: compared.append(matcher.a) or 0.0)
    assert rows("tmeprature" * 2000) == [] and not compared
    assert rows("tmeprature") == [] and compared
    compared.clear()
    assert rows("tmeprature " * 9) == [] and not compared


def test_commands_take_an_argument_behind_their_name() -> None:
    assert rows("race 0.3")[0].does == Act("race('0.3')")
    assert rows("view charts")[0].does == Act("cycle_view('charts')")
    assert [row.text for row in rows("view t")][:2] == ["view text", "view tree"]
    assert rows("export html /tmp/a (b).html")[0].does == Act("export('html /tmp/a (b).html')")
    assert rows("export HTML")[0].does == Act("export('html')")


def test_a_what_if_of_a_whole_run_is_one_command() -> None:
    for typed in (
        "what if: weights expanded",
        "what if weights expanded",
        "whatif weights expanded",
        "What if: weights e",
    ):
        assert rows(typed)[0].does == Act("what_if('weights expanded')"), typed
    assert rows("what if: gamma 8")[0].does == Act("what_if('gamma 8')")
    assert rows("what if: processor topk 0.5 9")[0].does == Act("what_if('processor topk 0.5 9')")
    for typed, said in (
        ("what if: weights thin", "weights: 'thin' is not valid: give one of auto, packed, expanded, packed-int8"),
        ("what if: colour", "unknown setting 'colour'"),
        ("what if: gamma", "what if: 'gamma' is not valid: give a setting and its value"),
    ):
        does = rows(typed)[0].does
        assert isinstance(does, Refuse) and said in does.message


def test_a_temperature_under_greedy_tells_that_it_brings_its_processor() -> None:
    assert "multinomial" in rows("temperature 0.5")[0].help
    sampling = Settings(processor="topk")
    assert "multinomial" not in rows_for("temperature 0.5", sampling, ModelChoice())[0].help


def test_a_setting_that_the_processor_has_no_use_for_has_no_present_value() -> None:
    plain, topk = Settings(processor="multinomial"), Settings(processor="topk")

    def told(text: str, settings: Settings) -> dict[str, str]:
        return {row.text: row.help for row in rows_for(text, settings, ModelChoice())}

    assert told("", plain)["top-k"].endswith("· multinomial has no use for it")
    assert told("", topk)["top-k"].endswith("· now 50") and told("", topk)["top-p"].endswith("· topk has no use for it")
    assert told("", plain)["temperature"].endswith("· now 0.7")
    assert told("top-k 5", plain)["top-k 5"].startswith("with processor topk, since multinomial has no use for it")
    assert "now 50" in told("top-k 5", topk)["top-k 5"]
    assert told("top-p 0.8", topk)["top-p 0.8"].startswith("with processor topknucleus, since topk has no use for it")
    assert told("top-k ", topk)["top-k 50"] == "as now" != told("top-k ", plain)["top-k 50"]


def test_a_file_that_is_there_can_be_opened(tmp_path: Path) -> None:
    path = tmp_path / "it's.jsonl"
    path.touch()
    assert rows(f"open trace {path}")[0].does == Act(f"open_trace({str(path)!r})")


def test_without_its_argument_a_command_says_what_it_takes() -> None:
    texts = [row.text for row in rows("race ")]
    assert "race 0.5" in texts and "race …" in texts
    (asked,) = [row for row in rows("open trace ") if row.text == "open trace …"]
    assert asked.does == Refuse("open trace: give a file")
    assert rows("race")[0].does == Act("race")
