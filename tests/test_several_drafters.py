"""Which strategies run with so many drafters, and what tells them apart."""

from __future__ import annotations

import pytest

from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.settings import SPECULATIVE, STRATEGIES, SettingError, parse_value
from specdec_tui.several_drafters import asked_for, drafter_of, key_of, labelled, labels, running, short_names, shown


def pair(*names: str) -> PairInfo:
    target, *drafters = (ModelInfo(name, "cpu", "float32", "none", 1, 4, 64) for name in ("t", *names))
    return PairInfo(target, tuple(drafters), False)


@pytest.mark.parametrize(
    ("asked", "drafters", "expected"),
    [
        ("target,speculative", 0, "target speculative"),  # as ever: the run says that it has none
        ("target,speculative", 1, "target speculative"),
        ("target,speculative,lookup", 2, "target speculative lookup speculative-2"),
        ("speculative", 4, "speculative speculative-2 speculative-3 speculative-4"),
        ("target,speculative-1", 3, "target speculative"),
        ("target,speculative-2", 3, "target speculative-2"),
        ("speculative-1,speculative-3", 3, "speculative speculative-3"),
        ("target,speculative-2", 1, "target speculative"),  # with another pair: the first in its place
        ("speculative-2,speculative-3", 2, "speculative-2"),
        ("target,ngram", 3, "target ngram"),
    ],
)
def test_speculative_means_every_drafter_and_with_a_number_one(asked: str, drafters: int, expected: str) -> None:
    assert running(parse_value("strategies", asked), drafters) == tuple(expected.split())


@pytest.mark.parametrize(
    ("asked", "drafters", "toggled", "words"),
    [
        ("target,speculative", 2, "speculative-2", "speculative-1,target"),
        ("target,speculative-1", 2, "speculative-2", "speculative,target"),
        ("target,speculative", 2, "speculative", "speculative-2,target"),
        ("target,speculative", 1, "speculative", "target"),
        ("target,speculative-1", 1, "ngram", "ngram,speculative-1,target"),  # not changed: it stays as it was asked
        ("target,speculative-2", 1, "ngram", "ngram,speculative-2,target"),
        ("target", 3, "speculative-3", "speculative-3,target"),
    ],
)
def test_a_switch_changes_the_setting_as_little_as_can_be(asked: str, drafters: int, toggled: str, words: str) -> None:
    before = parse_value("strategies", asked)
    wanted = set(running(before, drafters)) ^ {toggled}
    assert ",".join(asked_for(wanted, before, drafters)) == words
    assert set(running(words.split(","), drafters)) == wanted


def test_strategies_of_further_drafters_are_there_with_these_alone() -> None:
    alone = tuple(name for name in STRATEGIES if name not in SPECULATIVE[1:])
    assert shown(0) == shown(1) == alone
    assert set(shown(3)) - set(alone) == {"speculative-2", "speculative-3"} and shown(4) == STRATEGIES
    assert len({key_of(name) for name in STRATEGIES}) == len(STRATEGIES)


def test_a_drafter_is_called_by_as_much_of_its_name_as_tells_it_apart() -> None:
    assert short_names(["org/small", "/models/tiny/"]) == ["small", "tiny"]
    assert short_names(["a/small", "b/small"]) == ["a/small", "b/small"]
    assert short_names(["small", "a/small"]) == ["small", "a/small"]
    assert labels(None) == labels(pair()) == labels(pair("org/one")) == {}
    names = labels(pair("org/one", "org/two"))
    assert names == {"drafter": "one", "drafter-beam": "one", "speculative": "one", "speculative-2": "two"}
    assert labelled("speculative-2", names) == "speculative-2 · two" and labelled("ngram", names) == "ngram"


def test_the_model_that_drafts_is_known_of_every_strategy() -> None:
    both = pair("one", "two")
    drafting = {name: found.name for name in STRATEGIES if (found := drafter_of(name, both))}
    assert drafting == {"drafter": "one", "drafter-beam": "one", "speculative": "one", "speculative-2": "two"}
    assert drafter_of("ngram", both, falls_back=True) == both.drafters[0]


def test_drafters_are_a_name_or_a_list_and_what_is_wrong_with_it_is_said() -> None:
    assert parse_value("drafter", " org/one ") == ("org/one",)
    assert parse_value("drafter", '["org/one", "two"]') == ("org/one", "two")
    assert parse_value("drafter", "none") == ("none",) and parse_value("drafter", "") == ()
    for text, why in (
        ('["a", "b", "c", "d", "e"]', "there are 5, and at most 4 are allowed"),
        ('["a", "None"]', "'none' stands without others"),
        ('["a/x", "./a/x/"]', "one stands in it twice"),
        ('["a", " "]', "give a hub id, a folder"),
        ('["a", 1]', "give a hub id, a folder"),
    ):
        with pytest.raises(SettingError, match=why):
            parse_value("drafter", text)
