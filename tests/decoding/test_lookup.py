"""Prompt look-up."""

from __future__ import annotations

import random

import torch
from tiny_models import emitted, rounds, run, scripted_model

from specdec_tui.decoding.drafters import DraftSetup
from specdec_tui.decoding.lookup import LookupDrafter, LookupIndex
from specdec_tui.decoding.rules import GREEDY
from specdec_tui.decoding.sampling import Dice, Sampler

SETUP = DraftSetup(Sampler(), GREEDY, Dice(0, 16, torch.device("cpu")), frozenset(), 100)


def drafts(text: list[int], order: int = 3, most: int = 4) -> list[int]:
    drafter = LookupDrafter(order)
    drafter.start(text, SETUP)
    return drafter.propose(text, most, 0).ids


def test_the_longest_ending_wins_over_a_more_recent_shorter_one() -> None:
    assert drafts([1, 2, 3, 7, 8, 3, 9, 1, 2, 3])[:2] == [7, 8]


def test_the_most_recent_occurrence_wins() -> None:
    assert drafts([1, 2, 7, 1, 2, 8, 1, 2])[0] == 8


def test_shorter_endings_are_tried_down_to_one_token() -> None:
    assert drafts([4, 5, 6, 9, 5], most=2) == [6, 9]


def test_order_limits_the_ending() -> None:
    text = [1, 2, 3, 7, 2, 3, 8, 1, 2, 3]
    assert drafts(text, order=3)[0] == 7
    assert drafts(text, order=2)[0] == 8


def test_an_ending_never_seen_gives_no_drafts() -> None:
    assert drafts([1, 2, 3]) == []
    assert drafts([1]) == []


def test_a_copy_runs_on_into_its_own_drafts() -> None:
    assert drafts([5, 5], most=4) == [5, 5, 5, 5]
    assert drafts([8, 1, 2, 1, 2], most=5) == [1, 2, 1, 2, 1]


def test_the_index_finds_what_a_scan_finds() -> None:
    chance = random.Random(3)
    for order in (1, 2, 4):
        text: list[int] = []
        index = LookupIndex(order)
        for _ in range(200):
            text += [chance.randrange(4) for _ in range(chance.randrange(1, 4))]
            index.extend(text)
            scanned = None
            for n in range(min(order, len(text)), 0, -1):
                ends = [i for i in range(n, len(text)) if text[i - n : i] == text[-n:]]
                if ends:
                    scanned = ends[-1]
                    break
            assert index.find(text) == scanned


def test_a_copying_target_takes_few_rounds_and_a_second_run_starts_afresh() -> None:
    prompt = [1, 2, 3, 4, 5, 6, 7, 8, 1]
    target = scripted_model([2, 3, 4, 5, 6, 7, 8, 1, 2], prompt_length=len(prompt))
    drafter = LookupDrafter(3)
    for _ in range(2):
        records = run(target, prompt, drafter, gamma=4, max_new_tokens=9)
        assert emitted(records) == [2, 3, 4, 5, 6, 7, 8, 1, 2]
        assert len(rounds(records)) == 2
