"""How much a trace can hold: no more than the app itself can make. What shows a trace relies on these bounds."""

from __future__ import annotations

MOST_DRAFTS = 32
"""Of a round: the largest γ of the settings."""
MOST_LENGTHS = 32
"""Of the passes of a model that are measured before its first run; the app measures a dozen."""
MOST_TOKENS = 32_768
"""Of a run: the largest length of the settings. Every round adds one at least, so there are no more rounds."""
MOST_ALTERNATIVES = 64
"""Of a distribution at one place; the app keeps a dozen."""
MOST_BEAMS = 64
"""Of a step of a search: as many ended texts as beams, and these are 32 at most."""
MOST_CHANGES = 32
"""Settings in which a what-if differs."""
MOST_NOTICES = 32
"""Of a run, and as many of whatever else is told only now and then."""
MOST_STRATEGIES = 256
"""Those of later versions among them, and what-ifs."""

LONGEST_NAME = 100
LONGEST_MESSAGE = 10_000
LONGEST_PIECE = 2**16
"""Characters that one token adds to the text."""
LONGEST_ANSWER = 64 * MOST_TOKENS
"""Characters of all tokens of a run together."""
LONGEST_PROMPT = 2**23
"""Characters of a prompt: those of a context of a million tokens, and more."""
