"""What the words, signs and figures mean, told once: for the help, the empty panes and the HTML report."""

from __future__ import annotations

IDEA = (
    "A language model writes one token per pass, and a pass of a big one is slow: it reads all its weights. "
    "So a small model, the drafter, guesses the next γ tokens, and the big one, the target, checks them in one pass. "
    "Guesses it would have written itself are kept, the first that it would not is replaced, the rest is dropped: "
    "the text, or its chances when sampled, is the target's. "
    "How much faster that is depends on how many are kept and on what guessing and checking cost."
)
"""Speculative decoding in four sentences."""

FIGURES = {
    "γ": "draft tokens a round",
    "α": "acceptance rate: accepted drafts of those judged",
    "τ": "new tokens per target pass: at most γ + 1, about 1 + α + … + α^γ",
    "c": "time of a draft in plain target steps",
    "v": "time of a full round's target pass in plain target steps; ideal: 1",
}
"""The letters of the panes. Their formulas are in `decoding/figures.py`."""

OF_A_TOKEN = {
    "p, q": "chance that the target, the drafter gives a token, after temperature and cuts",
    "coin": "a number drawn from 0 to 1: below its chance to be accepted a draft is kept, from there on refused",
    "H, Hq": "entropy of what the target, the drafter could say, in nats: 0 is sure; raw: before temperature and cuts",
    "0–5 ▂▅█": "tokens of each of the last rounds, from 0 to γ + 1",
}
"""What stands beside tokens and figures of a run with insight."""

FATES = {
    "accepted": ("✓", "a draft that the target kept"),
    "rejected": ("✗", "a draft that the target refused"),
    "unverified": ("○", "drafted behind a refusal, never judged: of no use"),
    "resampled": ("↻", "the correction in place of a rejected draft"),
    "bonus": ("+", "the extra token of a fully accepted round"),
    "sampled": ("›", "a plain draw; of a search: settled in all that can win"),
    "pending": ("?", "drafted, not judged yet; of a search: its best text"),
}
"""What becomes of a token: its glyph and its meaning, in the order of legends."""


def fate_word(fate: str, searches: bool) -> str:
    """What a fate is called, of a run that searches or of one that draws: a search draws nothing."""
    return "settled" if searches and fate == "sampled" else fate


STRATEGIES = {
    "target": "the target alone, one token per pass: the baseline",
    "drafter": "the drafter alone: how fast and how different it is",
    "speculative": "the drafter model guesses γ tokens, the target checks them in one pass",
    "ngram": "guesses what most often followed the last words here, the target checks it in one pass",
    "lookup": "copies what followed the last words earlier in the text, the target checks it in one pass",
    "beam": "the target goes on with several texts and keeps the most probable whole: another one than its own",
    "drafter-beam": "the same search by the drafter alone",
    "speculative-2": "the same as speculative, with the second drafter",
    "speculative-3": "the same as speculative, with the third drafter",
    "speculative-4": "the same as speculative, with the fourth drafter",
}
