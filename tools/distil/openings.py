"""How the rows of a batch begin, at which temperature they go on, and which turns follow."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from distil.prompts import (
    BEGINNINGS,
    FOLLOW_UPS,
    RAW_OPENINGS,
    TEMPLATES,
    TOPICS,
    Template,
    all_turns,
    fill,
    normal_form,
)

USER, ANSWER, RAW = 0, 1, 2
"""Whose text comes next: a user's turn made up by the target, its answer, or prose without a chat."""

_MARKS = ("@FIRST@", "@ANSWER@", "@SECOND@")

# Share, temperature of answers, whether the tail is cut. Most answers have the untouched distribution of
# temperature 1: it is the one to be guessed, and its texts differ the most. A quarter is (nearly) greedy, as most
# deployments are.
TEMPERATURES: tuple[tuple[float, float, bool], ...] = (
    (0.22, 0.0, True),
    (0.03, 0.05, True),
    (0.10, 0.7, True),
    (0.05, 1.0, True),
    (0.60, 1.0, False),
)
USER_TEMPERATURE = 0.9  # else all bare rows of temperature 0 would be one and the same
MIXTURE: tuple[tuple[str, float], ...] = (("bare", 0.30), ("question", 0.46), ("beginning", 0.16), ("raw", 0.08))
SCRIPTED_FOLLOW_UPS = 0.4  # share of questions whose second user turn is one of FOLLOW_UPS


def recipe() -> dict[str, Any]:
    """What decides the openings besides seed and number, to be kept with the text."""
    words = "\n".join([*all_turns(), *RAW_OPENINGS])
    return {
        "temperatures": [list(row) for row in TEMPERATURES],
        "user_temperature": USER_TEMPERATURE,
        "mixture": [list(row) for row in MIXTURE],
        "scripted_follow_ups": SCRIPTED_FOLLOW_UPS,
        "words_sha256": hashlib.sha256(words.encode()).hexdigest(),
    }


@dataclass(frozen=True, slots=True)
class ChatPieces:
    """The chat template as strings between which contents stand; each without the end token before it."""

    before_user: str
    after_user: str
    after_answer: str
    end: str
    end_id: int


@dataclass(frozen=True, slots=True)
class Opening:
    """Forced first ids of a row, who goes on, and the ids that follow the ends of turns.

    `follow` holds what comes after the first answer, after later answers, and after a user's turn;
    `follow_role` says who goes on after each.
    """

    ids: tuple[int, ...]
    role: int
    temperature: float
    cut: bool
    follow: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    follow_role: tuple[int, int, int]


def chat_pieces(tokenizer: Any) -> ChatPieces:
    """Take the tokenizer's chat template apart; ValueError where it is none whose turns end with the end token."""
    first, answer, second = _MARKS
    messages = [
        {"role": "user", "content": first},
        {"role": "assistant", "content": answer},
        {"role": "user", "content": second},
    ]
    text = str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    before_user, rest = text.split(first)
    after_user, rest = rest.split(answer)
    after_answer, last = rest.split(second)
    end = str(tokenizer.eos_token)
    if not (after_user.startswith(end) and after_answer.startswith(end) and last == after_user):
        raise ValueError("the chat template does not end every turn with the end token")
    return ChatPieces(
        before_user, after_user.removeprefix(end), after_answer.removeprefix(end), end, int(tokenizer.eos_token_id)
    )


def _topic(template: Template, source: random.Random) -> str:
    return source.choice(TOPICS[template.over])


def _allowed(templates: Sequence[Template], source: random.Random, excluded: frozenset[str]) -> str:
    while True:
        # First a kind, then a template of it: kinds with many templates are not asked more often.
        kind = source.choice(sorted({template.kind for template in templates}))
        template = source.choice([template for template in templates if template.kind == kind])
        text = fill(template, _topic(template, source))
        if normal_form(text) not in excluded:
            return text


def make_openings(
    tokenizer: Any, count: int, seed: str, excluded: Iterable[str] = (), longest: int = 128
) -> list[Opening]:
    """`count` openings, the same for the same seed.

    No question, beginning or follow-up is in `excluded` (held-out prompts); what the target makes up is not looked at.
    """
    source = random.Random(seed)
    pieces = chat_pieces(tokenizer)
    held_out = frozenset(normal_form(text) for text in excluded)

    def ids(text: str) -> tuple[int, ...]:
        return tuple(tokenizer(text, add_special_tokens=False)["input_ids"])

    open_user, open_answer = ids(pieces.after_answer), ids(pieces.after_user)
    openings = []
    for _ in range(count):
        _, temperature, cut = source.choices(TEMPERATURES, [row[0] for row in TEMPERATURES])[0]
        sort = source.choices([name for name, _ in MIXTURE], [share for _, share in MIXTURE])[0]
        role, first, first_role = USER, open_user, USER
        if sort == "raw":
            topic = source.choice(TOPICS["subject"])
            text, role = source.choice(RAW_OPENINGS).replace("{}", topic), RAW
            temperature = max(temperature, 0.5)  # prose without an end soon repeats itself when greedy
        elif sort == "question":
            question = _allowed(TEMPLATES, source, held_out)
            text, role = pieces.before_user + question + pieces.end + pieces.after_user, ANSWER
            if source.random() < SCRIPTED_FOLLOW_UPS:
                follow_up = source.choice([each for each in FOLLOW_UPS if normal_form(each) not in held_out])
                first = ids(pieces.after_answer + follow_up + pieces.end + pieces.after_user)
                first_role = ANSWER
        else:
            begun = _allowed(BEGINNINGS, source, held_out) if sort == "beginning" else ""
            text = pieces.before_user + begun
        openings.append(
            Opening(
                ids(text)[:longest],
                role,
                temperature,
                cut,
                (first, open_user, open_answer),
                (first_role, USER, ANSWER),
            )
        )
    return openings
