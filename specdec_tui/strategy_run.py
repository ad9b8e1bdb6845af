"""One strategy's run over a prompt: its steps with their text, whose turn it is, and whether it can be compared."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import (
    EMITTED,
    Capturing,
    DraftsProposed,
    EndReason,
    Lossless,
    LosslessStatus,
    Notice,
    Origin,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
    beams_of,
    strategy_of,
    tokens_of,
)
from specdec_tui.run_settings import sampler_of
from specdec_tui.settings import Settings

if TYPE_CHECKING:
    from specdec_tui.backends.tokenizer import IncrementalText, PromptTokenizer
    from specdec_tui.decoding.ending import Ending


@dataclass
class StrategyRun:
    """One strategy's run in progress: its records to come and the text so far."""

    strategy: str
    records: Iterator[Record]
    tokenizer: PromptTokenizer
    text: IncrementalText
    prompt_text: str
    cancelled: Callable[[], bool]
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)  # of these ids, as they were told
    end: RunEnded | None = None
    pending: list[tuple[Token, str]] = field(default_factory=list)  # what a search has behind these
    searches: bool = False
    cut_by: RunEnded | None = None  # where it is over, but not yet told
    own_tokens: bool = False
    turn: int = 0  # tokens that it takes at once where strategies alternate: those of a stream that cannot be held
    given: tuple[int, ...] = ()  # ids of its text that it begins behind
    told: set[int] = field(default_factory=set)  # ids whose text was sent for the alternatives

    def begin_behind(self, given: Sequence[int]) -> None:
        """The text has these new tokens already, and so has the prompt as it is told."""
        self.given = tuple(given)
        self.prompt_text += "".join(self.text.push(given))

    @property
    def place(self) -> int:
        """How far it is: tokens of its text, those that a search has not settled among them."""
        return len(self.ids) + len(self.pending)

    @property
    def failed(self) -> bool:
        return self.end is None or self.end.reason is EndReason.ERROR

    @property
    def cut_short(self) -> bool:
        """Whether it ended before its own end."""
        return self.end is None or self.end.reason in (EndReason.ERROR, EndReason.CANCELLED)

    def step(self) -> Step:
        """The next record, with the text of its tokens. StopIteration when the run is over.

        Where there is no such text, as the tokenizer fails, takes too long or is stopped, the run ends.
        """
        from specdec_tui.backends.in_time import Stopped

        if self.cut_by is not None:
            self.end = self.cut_by
            return Step(self.strategy, self.end, answer="".join(self.pieces))
        record = next(self.records)
        if isinstance(record, RunStarted):
            self.searches = record.beams > 0
            record = replace(record, own_tokens=self.own_tokens)
            return Step(self.strategy, record, prompt_text=self.prompt_text)
        if not isinstance(record, DraftsProposed | PrefillDone | RoundVerified | RunEnded):
            return Step(self.strategy, record)
        try:
            step = self.tokenizer.spell(lambda: self._with_text(record), self.cancelled)
        except Stopped as stopped:
            return self._cut(record, RunEnded(EndReason.CANCELLED, str(stopped)))
        except ValueError as error:
            return self._cut(record, RunEnded(EndReason.ERROR, str(error)))
        if isinstance(record, RunEnded):
            self.end = record
        elif not isinstance(record, DraftsProposed):
            self._take(record, step.texts)
        elif self.searches:
            self.pending[record.kept :] = zip(record.drafts, step.texts, strict=True)
        return step

    def _with_text(self, record: DraftsProposed | PrefillDone | RoundVerified | RunEnded) -> Step:
        match record:
            case DraftsProposed(drafts=drafts, kept=kept):
                pending = [*(token for token, _ in self.pending[:kept]), *drafts]
                return Step(self.strategy, record, self.text.peek([token.id for token in pending])[kept:])
            case PrefillDone() | RoundVerified():
                alternatives = self._alternatives(record)
                return Step(self.strategy, record, self._advance(record), alternatives=alternatives)
            case RunEnded():
                rest = self.text.rest()
                answer = self._answer(rest)
                return Step(self.strategy, record, (rest,) if rest else (), answer=answer)

    def _answer(self, rest: str) -> str:
        """The text without special tokens; of one that begins behind given tokens, what it adds to theirs."""
        whole = self.tokenizer.decode([*self.given, *self.ids], skip_special_tokens=True)
        before = self.tokenizer.decode(self.given, skip_special_tokens=True) if self.given else ""
        # Where they end inside a character, the first of the new tokens has all of it.
        return whole.removeprefix(before) if whole.startswith(before) else "".join([*self.pieces, rest])

    def _cut(self, record: Record, end: RunEnded) -> Step:
        """The run ends before this record, with the answer as far as it was told: of a search its best text."""
        if isinstance(self.records, Generator):
            self.records.close()
        self.cut_by = end
        if not self.pending or not isinstance(record, DraftsProposed | RoundVerified):
            return self.step()
        settled = tuple(replace(token, status=Status.SAMPLED) for token, _ in self.pending)
        texts = tuple(text for _, text in self.pending)
        last = RoundVerified(record.round, (), None, 0.0, 0.0, 0.0, settled)
        self._take(last, texts)
        return Step(self.strategy, last, texts)

    def _take(self, record: PrefillDone | RoundVerified, texts: Sequence[str]) -> None:
        emitted = [(t.id, text) for t, text in zip(tokens_of(record), texts, strict=True) if t.status in EMITTED]
        self.ids += [id for id, _ in emitted]
        self.pieces += [text for _, text in emitted]
        if isinstance(record, RoundVerified):
            settled = [token.id for token in record.settled]
            goes_on = [token.id for token, _ in self.pending[: len(settled)]] == settled
            self.pending = self.pending[len(settled) :] if goes_on and record.beams else []

    def _alternatives(self, record: PrefillDone | RoundVerified) -> tuple[tuple[int, str], ...]:
        """Id and text of what the models thought of, as far as it was not sent before."""
        named = [id for beam in beams_of(record) for id in beam.ids]
        for token in tokens_of(record):
            if (seen := token.insight) is not None:
                named += [id for top in (seen.target_top, seen.drafter_top, seen.residual_top) for id, _ in top]
        new = {id: self.tokenizer.piece(id) for id in dict.fromkeys(named) if id not in self.told}
        self.told |= new.keys()
        return tuple(new.items())

    def _advance(self, record: PrefillDone | RoundVerified) -> tuple[str, ...]:
        """Take the emitted tokens into the text. Refused drafts stand behind the accepted ones, as alternatives."""
        tokens = tokens_of(record)
        accepted = [t.id for t in tokens if t.status is Status.ACCEPTED]
        refused = [t.id for t in tokens if t.status in (Status.REJECTED, Status.UNVERIFIED)]
        last = [t.id for t in tokens if t.status in EMITTED and t.status is not Status.ACCEPTED]
        return (*self.text.push(accepted), *self.text.peek(refused), *self.text.push(last))


def refused(
    strategy: str, prompt_tokens: int, settings: Settings, message: str, left: int, origin: Origin | None = None
) -> Iterator[Record]:
    """The records of a run that cannot be begun, of which `left` new tokens were asked."""
    yield RunStarted(strategy, prompt_tokens, settings.gamma, left, origin=origin)
    yield RunEnded(EndReason.ERROR, message)


def with_notices(records: Iterator[Record], notices: Sequence[str]) -> Iterator[Record]:
    """A run's records, with what is known beforehand behind the one that begins it."""
    yield next(records)
    yield from map(Notice, notices)
    yield from records


def in_turn(runs: list[StrategyRun]) -> Iterator[Step]:
    """One strategy after another: a machine that changes its speed meanwhile changes the ratios too."""
    for run in runs:
        while run.end is None:
            step = run.step()
            if isinstance(step.record, RunStarted):
                step = replace(step, record=replace(step.record, alone=True))
            yield step


def interleaved(runs: list[StrategyRun]) -> Iterator[Step]:
    """Round by round, the strategy with the fewest tokens next; every clock runs only during its own rounds.

    So all are at the same place of the text at the same time: whatever the machine does meanwhile
    happens to each of them over the same stretch, and their ratios keep. Turns by rounds alone would
    not do: the fast ones would be through long before the target. A stream is read for a whole `turn`,
    since its server goes on whether it is read or not. A search's turn ends with what it has open, so that
    this is to be seen while the others have theirs; to tell it takes no pass.
    """
    while active := [run for run in runs if run.end is None]:
        run = min(active, key=lambda run: run.place)
        until = run.place + run.turn
        step = run.step()
        while isinstance(step.record, DraftsProposed | RunStarted | Capturing | Notice):
            yield step
            step = run.step()
        yield step
        if any(beam.ids for beam in beams_of(step.record)[:1]):
            yield run.step()
        while run.place < until and run.end is None:
            yield run.step()


def not_checkable(
    run: StrategyRun, reference: StrategyRun | None, settings: Settings, stopped: bool
) -> Lossless | None:
    """Why a run is not compared with the target's; None when it is."""
    detail, strategy = "", strategy_of(run.strategy)
    if strategy == "drafter":
        detail = "the drafter's own text, not the target's"
    elif run.searches:
        detail = "a search over whole texts, not the target's greedy text"
    elif not run.ids:
        detail = "no tokens to compare"
    elif strategy == "target" and settings.rule != "coupled" and not sampler_of(settings).is_greedy:
        detail = "the target itself"
    elif stopped:
        known = [] if reference is None else reference.ids[: len(run.ids)]
        if known != run.ids:
            same = known and known == run.ids[: len(known)]
            detail = f"stopped: the first {len(known)} tokens are the target's" if same else "stopped, not checked"
    return Lossless(LosslessStatus.NOT_APPLICABLE, detail=detail) if detail else None


def as_far_as_it_went(run: StrategyRun, lossless: Lossless) -> Lossless:
    """A verdict on a run: one that failed is not identical to anything, whatever it wrote before."""
    if not run.failed or lossless.status not in (LosslessStatus.IDENTICAL, LosslessStatus.NEAR_TIES):
        return lossless
    count = len(run.ids)
    detail = f"failed: {'the first token is' if count == 1 else f'the first {count} tokens are'} the target's"
    return Lossless(LosslessStatus.NOT_APPLICABLE, detail=detail)


def ended_rightly(run: StrategyRun, ending: Ending, prompt: Sequence[int], settings: Settings) -> bool:
    """Whether a run ended at its first end or, without one, at its full length."""
    text, ends = [*prompt, *run.given], []
    for index, token in enumerate(run.ids):
        text.append(token)
        if ending.at(text):
            ends.append(index)
    if run.end is not None and run.end.reason is EndReason.END_TOKEN:
        return ends == [len(run.ids) - 1]
    full = (
        run.end is None
        or run.end.reason is not EndReason.LENGTH
        or len(run.given) + len(run.ids) == settings.max_new_tokens
    )
    return full and not ends
