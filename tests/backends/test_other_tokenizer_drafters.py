"""A drafter of another tokenizer changes no token of the target's text: over kinds of tokenizers, γ, and both ways.

Of pairs × ways × γ `make test` takes those in which every two of them meet.
"""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest
import torch
from covering import every_pair
from other_tokenizers import KINDS, TEXT, other_tokenizer
from tiny_transformers import tiny_model

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.spelling import Spelling
from specdec_tui.backends.token_bytes import spelling_of
from specdec_tui.backends.translation import Translation, translate
from specdec_tui.decoding.choosing import ChoosingDrafter
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.device_run import need_of
from specdec_tui.decoding.drafters import Drafter, DraftSetup, ModelDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.records import EndReason, Notice, PrefillDone, Record, RoundVerified, RunEnded, Status
from specdec_tui.decoding.retokenize import RetokenizeDrafter
from specdec_tui.decoding.rules import rule_for
from specdec_tui.decoding.sampling import Dice, Sampler
from specdec_tui.decoding.shared_vocabulary import SharedDrafter

GREEDY = Sampler("greedy")
PAIRS = [(one, other) for one, other in itertools.product(KINDS, KINDS) if one != other]
WAYS = ("shared", "retokenize", "ngram-or-shared")
GAMMAS = (1, 3, 8)
TRANSLATED = ("shared", "retokenize", "auto")
STORY = TEXT[:150] + "你好，世界。 😀 👍🏽 the café is naïve. " + TEXT[:100]
LENGTH = 40


@cache
def spelling(kind: str) -> Spelling:
    tokenizer = other_tokenizer(kind)
    return spelling_of(tokenizer, len(tokenizer))


@cache
def translation(target: str, drafter: str) -> Translation:
    return translate(spelling(target), spelling(drafter))


class TellsAStory:
    """A model that goes on with a story, whatever its tokens are, and now and then says something else."""

    context_length = None
    device = torch.device("cpu")

    def __init__(self, kind: str, errs: float = 0.0) -> None:
        self.vocab_size = len(other_tokenizer(kind))
        self._spelling, self._errs = spelling(kind), errs
        self._story = "".join(STORY.split()).encode()

    def open(self, *, use_cache: bool = True, capacity: int = 0) -> StoryContext:
        return StoryContext(self)

    def synchronize(self) -> None:
        pass

    def row(self, ids: list[int]) -> torch.Tensor:
        text = b"".join(self._spelling.text(ids).split())
        dice = random.Random(f"{len(text)} {ids[-1]}")
        row = torch.randn(self.vocab_size, generator=torch.Generator().manual_seed(dice.randrange(10**6)))
        if self._story.startswith(text) and dice.random() >= self._errs:
            rest = self._rest(len(text))
            own = self._spelling.ids(rest.encode()[:80])
            if own:
                row[own[0]] += 20
        return row

    def _rest(self, told: int) -> str:
        """The story, with its spaces, behind so many bytes without."""
        at = next((at for at in range(len(STORY)) if len("".join(STORY[:at].split()).encode()) >= told), len(STORY))
        return STORY[at:]


class StoryContext:
    recomputes = False

    def __init__(self, model: TellsAStory) -> None:
        self._model = model
        self.ids: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    def extend(self, ids: list[int], keep: int) -> torch.Tensor:
        assert 0 < keep <= len(ids)
        self.ids += ids
        ends = range(len(self.ids) - keep + 1, len(self.ids) + 1)
        return torch.stack([self._model.row(self.ids[:end]) for end in ends])

    def rewind(self, length: int) -> None:
        assert 0 <= length <= len(self.ids)
        del self.ids[length:]


def drafter_of(way: str, model, target, both: Translation) -> Drafter:
    shared = SharedDrafter(model, target.vocab_size, both)
    retokenize = RetokenizeDrafter(model, both)
    match way:
        case "shared":
            return shared
        case "retokenize":
            return retokenize
        case "ngram-or-shared":
            return NgramDrafter(NgramStore(3), 2, shared)
        case "auto":
            return ChoosingDrafter(target, both, shared, retokenize)
    raise AssertionError(way)


def played(target, prompt: list[int], drafter: Drafter | None, gamma: int, **settings) -> list[Record]:
    settings = {"sampler": GREEDY, "max_new_tokens": LENGTH} | settings
    return list(decode(target, prompt, strategy="tested", drafter=drafter, gamma=gamma, **settings))


def text_of(records: list[Record]) -> list[int]:
    assert isinstance(records[-1], RunEnded) and records[-1].reason is not EndReason.ERROR, records[-1]
    first = [record.token.id for record in records if isinstance(record, PrefillDone) and record.token]
    return first + [t.id for record in records if isinstance(record, RoundVerified) for t in record.new_tokens]


def accepted(records: list[Record]) -> int:
    drafts = [token for record in records if isinstance(record, RoundVerified) for token in record.drafts]
    return sum(token.status is Status.ACCEPTED for token in drafts)


@cache
def told(kind: str) -> list[int]:
    """What a target alone writes."""
    return text_of(played(TellsAStory(kind), list(spelling(kind).ids(STORY[:40].encode())), None, 0))


@pytest.mark.each_value
@pytest.mark.parametrize(("pair", "way", "gamma"), every_pair(PAIRS, WAYS, GAMMAS))
def test_a_story_told_in_other_tokens_is_accepted_and_changes_nothing(
    pair: tuple[str, str], way: str, gamma: int
) -> None:
    target, drafter = pair
    model, other = TellsAStory(target), TellsAStory(drafter, errs=0.15)
    prompt = list(spelling(target).ids(STORY[:40].encode()))
    found = played(model, prompt, drafter_of(way, other, model, translation(target, drafter)), gamma)
    assert text_of(found) == told(target)
    assert way == "ngram-or-shared" or accepted(found) > 0


@cache
def random_model(kind: str) -> TransformersModel:
    """Its family depends on the kind, so that two of a pair are not alike."""
    family = dict(zip(KINDS, ("llama", "gpt2", "qwen3", "gemma2"), strict=True))[kind]
    return TransformersModel(tiny_model(family, vocab_size=len(other_tokenizer(kind)) + 8))


@cache
def generated(kind: str) -> tuple[list[int], list[int]]:
    """A prompt, and what transformers' own greedy decoding writes behind it."""
    prompt = list(other_tokenizer(kind)("the cat sat on the mat")["input_ids"])
    with torch.no_grad():
        ids = torch.tensor([prompt])
        options = {"attention_mask": torch.ones_like(ids), "eos_token_id": None, "pad_token_id": 0}
        whole = random_model(kind).model.generate(ids, do_sample=False, max_new_tokens=24, **options)
    return prompt, whole[0, len(prompt) :].tolist()


# Of what a story is told over in `make test`, one way for each pair.
@pytest.mark.parametrize(
    ("pair", "way", "gamma"),
    [
        pytest.param(*one.values, marks=[*one.marks, *[pytest.mark.large] * (one.values[1] != way)])
        for one, way in zip(
            every_pair(PAIRS, TRANSLATED, GAMMAS),
            (TRANSLATED[at % 3] for at, _ in enumerate(PAIRS) for _ in range(3 * len(GAMMAS))),
            strict=True,
        )
    ],
)
def test_the_text_is_that_of_generate(pair: tuple[str, str], way: str, gamma: int) -> None:
    target, drafter = pair
    model, other = random_model(target), random_model(drafter)
    prompt, text = generated(target)
    drafts = drafter_of(way, other, model, translation(target, drafter))
    assert text_of(played(model, prompt, drafts, gamma, max_new_tokens=24)) == text


def test_a_pair_of_one_tokenizer_in_two_orders_drafts_what_the_same_tokenizer_would() -> None:
    """Mapped by strings, ids that mean the same text make the same drafts."""
    model = random_model("byte-level")
    ours = spelling("byte-level")
    size = model.vocab_size
    order = list(range(size))
    random.Random(1).shuffle(order)  # the drafter's id of each of the target's
    theirs = Spelling(
        {order[token]: text for token, text in sorted(ours.bytes_of.items(), key=lambda item: order[item[0]])},
        lambda text: [order[token] for token in ours._read(text)],
        True,
        tuple(order[token] for token in ours.before),
    )
    both = translate(ours, theirs)
    assert both.to_drafter == {token: order[token] for token in sorted(ours.bytes_of)}
    prompt = list(other_tokenizer("byte-level")("the cat sat on the mat")["input_ids"])
    same = torch.zeros(size, dtype=torch.bool)
    same[list(ours.bytes_of)] = True
    # Special tokens do not cross, so neither is given one.
    words = Controls(banned=tuple((token,) for token in range(size) if not same[token]))
    settings = {"sampler": Sampler("multinomial", 1.0), "seed": 3, "controls": words}
    plain = played(model, prompt, ModelDrafter(model, size, same), 4, **settings)
    mapped = played(model, prompt, SharedDrafter(Shuffled(model, order), size, both), 4, **settings)
    assert text_of(mapped) == text_of(plain) and accepted(mapped) == accepted(plain) > 0


class Shuffled:
    """A model whose ids stand in another order."""

    def __init__(self, model: TransformersModel, order: list[int]) -> None:
        self._model, self._order = model, order
        self._back = {own: token for token, own in enumerate(order)}
        self.vocab_size, self.context_length, self.device = model.vocab_size, model.context_length, model.device

    def open(self, **options):
        return ShuffledContext(self._model.open(**options), self._order, self._back)

    def synchronize(self) -> None:
        pass


class ShuffledContext:
    recomputes = False

    def __init__(self, context, order: list[int], back: dict[int, int]) -> None:
        self._context, self._back = context, back
        self._places = torch.tensor([back[own] for own in range(len(order))])

    @property
    def length(self) -> int:
        return self._context.length

    def extend(self, ids: list[int], keep: int) -> torch.Tensor:
        return self._context.extend([self._back[token] for token in ids], keep)[:, self._places]

    def rewind(self, length: int) -> None:
        self._context.rewind(length)


@pytest.mark.parametrize("way", ["shared", "retokenize"])
def test_a_drafter_whose_context_is_full_drafts_no_more_and_says_so(way: str) -> None:
    model = random_model("byte-level")
    small = TransformersModel(
        tiny_model("llama", vocab_size=len(other_tokenizer("unigram")), max_position_embeddings=24)
    )
    prompt = list(other_tokenizer("byte-level")("the cat sat")["input_ids"])
    drafts = drafter_of(way, small, model, translation("byte-level", "unigram"))
    found = played(model, prompt, drafts, 3)
    assert text_of(found) == text_of(played(model, prompt, None, 0))
    assert [r.message for r in found if isinstance(r, Notice)] == [
        "the drafter's context of 24 tokens is full: no more drafts from it"
    ]
    assert not found[-2].drafts


def test_auto_tells_what_it_chose_and_what_that_took() -> None:
    model, prompt = TellsAStory("byte-level"), list(spelling("byte-level").ids(STORY[:110].encode()))
    told = {}
    for drafter in ("byte-fallback", "unigram"):
        drafts = drafter_of("auto", TellsAStory(drafter), model, translation("byte-level", drafter))
        [told[drafter]] = [r.message for r in played(model, prompt, drafts, 3) if isinstance(r, Notice)]
    assert "tokenizers shared: " in told["byte-fallback"]
    assert "tokenizers retokenize: " in told["unigram"] and "48 positions" in told["unigram"]
    assert "s of the prefill" in told["unigram"]


def test_the_share_is_the_targets_probability_of_tokens_that_both_have_among_those_of_text() -> None:
    model, both = TellsAStory("byte-level"), translation("byte-level", "word-piece")
    drafts = drafter_of("auto", TellsAStory("word-piece"), model, both)
    assert isinstance(drafts, ChoosingDrafter)
    rows = torch.full((2, model.vocab_size), -torch.inf)
    ours = spelling("byte-level")
    shared = next(iter(both.to_drafter))
    alone = next(token for token in ours.bytes_of if token not in both.to_drafter)
    special = next(token for token in range(model.vocab_size) if token not in ours.bytes_of)
    rows[0, [shared, alone, special]] = torch.tensor([0.3, 0.1, 0.6]).log()
    rows[1, shared] = 0.0
    assert drafts.share(rows) == pytest.approx((0.3 + 1) / (0.4 + 1))


@pytest.mark.parametrize("way", ["shared", "retokenize", "auto", "ngram-or-shared"])
def test_rounds_of_another_tokenizer_are_not_captured_and_say_why(way: str) -> None:
    model = random_model("byte-level")
    drafts = drafter_of(way, random_model("unigram"), model, translation("byte-level", "unigram"))
    with pytest.raises(ValueError, match=r"tokenizer is not the target's|asks a model between"):
        need_of(model, drafts, sampler=GREEDY, rule="rejection", gamma=3, end_ids=frozenset(), capacity=64)


def test_a_cancelled_prompt_ends_a_run_while_the_drafters_tokenizer_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from specdec_tui.backends import in_time

    def stopped(*rest: object) -> None:
        raise in_time.Stopped

    monkeypatch.setattr(in_time, "in_time", stopped)
    model = random_model("byte-level")
    drafts = drafter_of("shared", random_model("unigram"), model, translation("byte-level", "unigram"))
    [end] = [r for r in played(model, [0, 5, 6], drafts, 3) if isinstance(r, RunEnded)]
    assert end.reason is EndReason.CANCELLED


def test_auto_tells_a_full_context_too() -> None:
    model = random_model("byte-level")
    small = TransformersModel(
        tiny_model("llama", vocab_size=len(other_tokenizer("unigram")), max_position_embeddings=24)
    )
    prompt = list(other_tokenizer("byte-level")("the cat sat")["input_ids"])
    drafts = drafter_of("auto", small, model, translation("byte-level", "unigram"))
    told = [r.message for r in played(model, prompt, drafts, 3) if isinstance(r, Notice)]
    assert (
        len(told) == 2 and told[1] == f"{told[0]}; the drafter's context of 24 tokens is full: no more drafts from it"
    )


def test_a_drafter_whose_first_word_cannot_be_drafted_stops_writing_behind_it() -> None:
    ours = spelling("byte-level")
    other = TellsAStory("byte-fallback")
    prompt = [*ours.ids(STORY[:14].encode()), ours.id_of[b" "], ours.id_of[b"t"], ours.id_of[b"h"]]
    assert STORY.encode().startswith(ours.text(prompt) + b"e mat") and ours.ids(b" the") == (ours.id_of[b" the"],)
    steps = []
    row = other.row
    other.row = lambda ids: steps.append(ids) or row(ids)  # type: ignore[method-assign]
    drafts = RetokenizeDrafter(other, translation("byte-level", "byte-fallback"))
    drafts.start(prompt, DraftSetup(GREEDY, rule_for("rejection", GREEDY), Dice(0, 9, other.device), frozenset(), 99))
    assert not drafts.propose(prompt, 8, 0).ids and len(steps) < 8
