"""The eight steps of the tour: what each runs and shows, and who says its sentences. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec_tui.settings import Settings
from specdec_tui.tui.commands.examples import EXAMPLES
from specdec_tui.tui.tour.words import (
    Said,
    Scene,
    again,
    of_a_round,
    of_charts,
    of_copies,
    of_coupling,
    of_gamma,
    of_slowness,
    of_speed,
    of_the_text,
)

_LIST, _STORY = EXAMPLES[1].prompt, EXAMPLES[2].prompt
_EDIT = (
    "Add type hints to this function:\n\n"
    "def total_price(items, tax_rate):\n"
    "    total = 0\n"
    "    for item in items:\n"
    "        total += item.price * item.quantity\n"
    "    return total * (1 + tax_rate)\n"
)
_STRATEGIES = ("target", "speculative", "lookup")


@dataclass(frozen=True, slots=True)
class Ask:
    """A prompt and what it is run with; nothing of either is a setting of the user's."""

    prompt: str
    settings: Settings


def _ask(prompt: str, tokens: int, **settings: object) -> Ask:
    given = {"strategies": _STRATEGIES, "max_new_tokens": tokens, "record": False, **settings}
    return Ask(prompt, Settings(**given))  # type: ignore[arg-type]


GREEDY = _ask(_LIST, 72)
HARD = _ask(_STORY, 72, processor="multinomial", temperature=1.0, gamma=16)
COPIES = _ask(_EDIT, 72)
PLAIN = _ask(_STORY, 72)
COUPLED = _ask(_STORY, 72, processor="multinomial", temperature=0.8, rule="coupled")


IN_SHORT = (
    "In short: a check reads γ drafts in one pass; it pays where 1 + kept is more than γ·c + v, and the text stays."
)
"""The tour in a line, for its end."""

Words = Callable[[Scene], Said]


@dataclass(frozen=True, slots=True)
class TourStep:
    """`doing`: what is said while the run goes on. `view` is of all panes; `strategy` is the pane that is gone into.

    `inspects`: a refused draft is marked in it, if there is one. `tells_a_round`: the round told of is to be in sight.
    """

    title: str
    ask: Ask
    doing: str
    view: str
    words: Words
    strategy: str = "speculative"
    inspects: bool = False
    tells_a_round: bool = False


STEPS = (
    TourStep(
        "what a round is",
        GREEDY,
        "A list is written, by the target alone and with drafts.",
        "rounds",
        of_a_round,
        tells_a_round=True,
    ),
    TourStep("why the text is the target's", GREEDY, "", "rounds", of_the_text, inspects=True),
    TourStep("why it is faster", GREEDY, "", "time", of_speed),
    TourStep("when it is not", HARD, "A story at T = 1, 16 drafts a round.", "rounds", of_slowness, inspects=True),
    TourStep("look-up, and code", COPIES, "A function that is to be rewritten.", "text", of_copies, "lookup"),
    TourStep("the coupled rule", COUPLED, "The story at T = 0.8, coupled.", "rounds", of_coupling, inspects=True),
    TourStep("reading the charts", PLAIN, "The story once more, greedy, with γ 4.", "charts", of_charts),
    TourStep("choosing γ", PLAIN, "", "time", of_gamma),
)


def words_of(step: TourStep, scene: Scene) -> Said:
    """The sentences of a step on the run that is on the screen, however far it went."""
    needed = dict.fromkeys(("target", "speculative", step.strategy))
    lacking = [name for name in needed if name not in scene.runs or not scene.runs[name].rounds]
    if lacking:
        return Said(f"The run did not get so far: {', '.join(lacking)} has no round to tell of. {again()}")
    return step.words(scene)
