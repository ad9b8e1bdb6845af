"""Whether the records of a run can be those of one: what the decoding loop never writes is damage.

Each round is checked as it is read, against what the rounds before it left: no step of a trace is read twice.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
    beams_of,
    tokens_of,
)
from specdec_tui.traces.values import BadField

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_ROUNDED = 1e-3  # a draw this close to a chance says nothing
_MOST_PLACES = 64  # a text that repeats itself has more, and is not worth the time


@dataclass(slots=True)
class Played:
    """What was read of a run: the tokens of its text, their pieces, and how it ended."""

    token_by_token: bool = False
    """Whether its rule judges each draft by its own draw alone."""
    gamma: int = 0
    beams: int = 0
    max_new_tokens: int = 0
    is_child: bool = False
    """It is a what-if."""
    served: bool = False
    """A server drafted by itself."""
    first: int = 0
    """The place of its first new token: of a what-if, behind what it was given."""
    ids: list[int] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)
    end: EndReason | None = None
    _proposed: tuple[int, ...] = ()
    _pending: int = 0
    """Tokens that a search has told of behind the text."""
    _full: bool = False
    """No round can follow."""
    _unplaced: int = 0
    """Rounds without a draft that is known, of which it is not told whether they had any."""
    _told: set[int] = field(default_factory=set)
    """Of these ids the texts were read, as alternatives."""

    @property
    def _next(self) -> int:
        return self.first + len(self.ids)

    @property
    def cut_short(self) -> bool:
        """Whether it ended before its own end."""
        return self.end in (None, EndReason.ERROR, EndReason.CANCELLED)

    def take(self, step: Step) -> None:
        """BadField where the next step contradicts those before it, or itself."""
        match step.record:
            case RoundVerified() as record:
                self._take_round(record, step.texts)
                for index, draft in enumerate(record.drafts):
                    _check_draw(f"drafts[{index}].draw", draft, self.token_by_token)
            case DraftsProposed(drafts=drafts, kept=kept) if self.beams or kept:
                self._take_open(drafts, kept)
            case DraftsProposed(drafts=drafts):
                self._check_drafts(drafts)
                if not drafts:
                    raise BadField("drafts", "must not be empty: of a round without drafts none are proposed")
                _check_statuses(drafts, [Status.PENDING] * len(drafts))
                self._proposed = tuple([draft.id for draft in drafts])
            case PrefillDone(token=token, passes=passes):
                for index in range(1, len(passes)):
                    if passes[index][0] <= passes[index - 1][0]:
                        raise BadField(f"passes[{index}][0]", "must be more than the tokens of the pass before")
                self._full = not beams_of(step.record) if self.beams else token is None
                if token is not None:
                    self._emit("token", token, Status.SAMPLED, step.texts[-1])
            case RunStarted(gamma=gamma, max_new_tokens=most, beams=beams, origin=origin):
                self.gamma, self.max_new_tokens, self.beams, self.served = gamma, most, beams, step.record.served
                self.is_child, self.first = origin is not None, 0 if origin is None else origin.given
            case RunEnded(reason=reason):
                self._take_end(reason, step)
                self._check_unplaced(step.record.unplaced)
        self._check_beams(step)
        if step.alternatives:
            self._take_alternatives(step)

    def _check_beams(self, step: Step) -> None:
        """Of a run that is no search there are none, and of one no more texts than go on and as many ended ones."""
        found = beams_of(step.record)
        if len(found) > 2 * self.beams:
            raise BadField("beams", f"must be at most {2 * self.beams} in this run, not {len(found)}")
        room = self.max_new_tokens - len(self.ids)
        for index, beam in enumerate(found):
            if beam.before + len(beam.ids) > room:
                raise BadField(f"beams[{index}]", f"must not exceed the {self.max_new_tokens:,} new tokens of the run")

    def _take_open(self, drafts: tuple[Token, ...], kept: int) -> None:
        """What a search has behind the text, which is no draft."""
        if self._full:
            raise BadField("event", "must be 'run_ended': the text of the run is over")
        if kept > self._pending:
            raise BadField("kept", f"must be at most the {self._pending} tokens that were pending, not {kept}")
        if not drafts and not kept:
            raise BadField("drafts", "must not be empty: nothing is pending")
        self._pending = kept + len(drafts)
        if len(self.ids) + self._pending > self.max_new_tokens:
            raise BadField("drafts", f"must not exceed the {self.max_new_tokens:,} new tokens of the run")
        _check_places("drafts", drafts, self._next + kept)
        _check_statuses(drafts, [Status.PENDING] * len(drafts))

    def _take_step(self, record: RoundVerified, texts: tuple[str, ...]) -> None:
        """A step of a search."""
        if self._full:
            raise BadField("event", "must be 'run_ended': the text of the run is over")
        for name, value in (("drafts", record.drafts), ("emitted", record.emitted)):
            if value:
                raise BadField(name, "must be empty: the run is a search")
        settled = record.settled
        _check_places("settled", settled, self._next)
        _check_statuses(settled, [Status.SAMPLED] * len(settled), "settled")
        self.ids += [token.id for token in settled]
        self.pieces += texts
        self._pending = max(0, self._pending - len(settled))
        self._full = not record.beams
        self._check_length("settled")

    def _take_round(self, record: RoundVerified, texts: tuple[str, ...]) -> None:
        if self.beams:
            self._take_step(record, texts)
            return
        if record.settled:
            raise BadField("settled", "must be empty: the run is no search")
        drafts, emitted = record.drafts, record.emitted
        if tuple([draft.id for draft in drafts]) != self._proposed:
            raise BadField("drafts", "must be those that were proposed for the round")
        self._proposed = ()
        self._check_drafts(drafts)
        fates = [draft.status for draft in drafts]
        accepted = next((index for index, fate in enumerate(fates) if fate is not Status.ACCEPTED), len(drafts))
        refused = [Status.REJECTED, *[Status.UNVERIFIED] * (len(drafts) - accepted - 1)]
        if accepted < len(drafts):
            _check_statuses(drafts, [Status.ACCEPTED] * accepted + refused)
        self._take_untold(record.untold, drafts, accepted)
        self.ids += [draft.id for draft in drafts[:accepted]]
        self.pieces += texts[:accepted]
        if emitted is None:
            if not drafts or accepted < len(drafts) or record.untold != 0:
                raise BadField("emitted", "must be a token where not all drafts were accepted")
            self._full = True
            self._check_length("drafts")
            return
        is_plain = record.untold is None or not (drafts or record.untold)
        is_bonus = accepted == len(drafts) and not record.untold
        due = Status.SAMPLED if is_plain else Status.BONUS if is_bonus else Status.RESAMPLED
        self._emit("emitted", emitted, due, texts[-1])

    def _take_untold(self, untold: int | None, drafts: tuple[Token, ...], accepted: int) -> None:
        """Drafts of a server's own round whose ids nobody knows."""
        if untold == 0:
            return
        if not self.served:
            raise BadField("untold", "must be left out: the run is no server's own")
        if accepted < len(drafts):
            raise BadField("untold", "must be left out where a refused draft is known")
        if len(drafts) + (untold or 0) > self.gamma:
            most = self.gamma - len(drafts)
            raise BadField("untold", f"must be at most the {most} left of the {self.gamma} of the run, not {untold}")
        self._unplaced += untold is None and not drafts

    def _check_unplaced(self, unplaced: tuple[int, int] | None) -> None:
        if unplaced is None:
            return
        rounds, drafts = unplaced
        if rounds > self._unplaced or not rounds <= drafts <= rounds * self.gamma:
            most = f"{self._unplaced} rounds, each of 1 to {self.gamma} drafts"
            raise BadField("unplaced", f"must be at most {most}, not {rounds} with {drafts}")

    def _emit(self, name: str, token: Token, due: Status, piece: str) -> None:
        if token.status is not due:
            raise _wrong_status(name, due, token)
        if token.position != self._next:
            raise BadField(f"{name}.position", f"must be {self._next}, not {token.position}")
        self.ids.append(token.id)
        self.pieces.append(piece)
        self._check_length(name)

    def _check_length(self, name: str) -> None:
        if len(self.ids) > self.max_new_tokens:
            raise BadField(name, f"must not exceed the {self.max_new_tokens:,} new tokens of the run")

    def _check_drafts(self, drafts: tuple[Token, ...]) -> None:
        if self._full:
            raise BadField("event", "must be 'run_ended': the text of the run is over")
        if len(drafts) > self.gamma:
            raise BadField("drafts", f"must be at most the {self.gamma} of the run, not {len(drafts)}")
        _check_places("drafts", drafts, self._next)

    def _take_end(self, reason: EndReason, step: Step) -> None:
        self.end = reason
        if reason is EndReason.LENGTH and len(self.ids) != self.max_new_tokens:
            told = f"'length' means {self.max_new_tokens:,} new tokens, the rounds have {len(self.ids):,}"
            raise BadField("reason", f"contradicts the rounds: {told}")
        if reason is EndReason.END_TOKEN and not self.ids and not self.first:
            raise BadField("reason", "contradicts the rounds: 'end_token' means a token, the rounds have none")
        if not is_answer(step.answer, [*self.pieces, *step.texts]):
            raise BadField("answer", "contradicts the texts of the rounds")

    def _take_alternatives(self, step: Step) -> None:
        named = {
            token
            for seen in (token.insight for token in tokens_of(step.record))
            if seen is not None
            for top in (seen.target_top, seen.drafter_top, seen.residual_top)
            for token, _ in top
        }
        named |= {id for beam in beams_of(step.record) for id in beam.ids}
        for token, _ in step.alternatives:
            if token not in named:
                raise BadField(
                    "alternatives", f"must hold only ids that the line's insights and beams name, not {token}"
                )
            if token in self._told:
                raise BadField("alternatives", f"must hold each id once in a run, {token} came before")
            self._told.add(token)


def is_answer(answer: str, pieces: list[str]) -> bool:
    """Whether an answer is the pieces without those of special tokens.

    Spaces are left to the tokenizer, and so is a text with a broken character, which may be whole without a special
    token in its middle.
    """
    if any(_REPLACEMENT in piece for piece in pieces):
        return True
    wanted, told = "".join(answer.split()), ["".join(piece.split()) for piece in pieces]
    if wanted == "".join(told):
        return True
    places = {0}  # up to which the answer can have been told by the pieces so far
    for piece in filter(None, told):
        places |= {place + len(piece) for place in places if wanted.startswith(piece, place)}
        if len(places) > _MOST_PLACES:
            return True
    return len(wanted) in places


def _check_places(name: str, tokens: tuple[Token, ...], due: int) -> None:
    for index, token in enumerate(tokens):
        if token.position != due + index:
            raise BadField(f"{name}[{index}].position", f"must be {due + index}, not {token.position}")


def _check_statuses(drafts: tuple[Token, ...], due: list[Status], name: str = "drafts") -> None:
    if [draft.status for draft in drafts] != due:
        index = next(index for index, draft in enumerate(drafts) if draft.status is not due[index])
        raise _wrong_status(f"{name}[{index}]", due[index], drafts[index])


def _check_draw(place: str, draft: Token, token_by_token: bool) -> None:
    """BadField where a draft was judged otherwise than its draw says. Numbers of files are rounded.

    No rule refuses a draft whose own draw was below its chance; `block` keeps some for what came behind them.
    """
    if draft.draw is None or draft.status not in (Status.ACCEPTED, Status.REJECTED):
        return
    name, chance = "acceptance", draft.acceptance
    if chance is None and token_by_token and draft.p is not None and draft.q:
        name, chance = "p / q", min(1.0, draft.p / draft.q)
    if chance is None or abs(draft.draw - chance) <= _ROUNDED:
        return
    below = draft.draw < chance
    if below != (draft.status is Status.ACCEPTED) and (below or token_by_token):
        side = "below" if below else "above"
        raise BadField(place, f"contradicts {draft.status}: {draft.draw:.4g} is {side} its {name} of {chance:.4g}")


def _wrong_status(name: str, due: Status, token: Token) -> BadField:
    return BadField(f"{name}.status", f"must be {due} here, not {token.status}")
