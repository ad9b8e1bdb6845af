"""Three prompts to begin with, of kinds that fare differently: each is one key."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Example:
    """`key` counts in the prompt box too, `letter` outside of it and only while the panes are empty."""

    kind: str
    prompt: str
    key: str
    letter: str


EXAMPLES = (
    Example("code", "Write a Python class for a stack with push and pop.", "f2", "a"),
    Example("list", "List five fruits, each with its colour.", "f3", "b"),
    Example("story", "Tell me a short story about a robot.", "f4", "c"),
)
