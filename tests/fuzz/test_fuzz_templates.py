"""Chat templates are programs of strangers: they format a prompt, or are refused in one line, in bounded time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from campaign import campaign, check_refusal
from mutations import TEXTS, damaged
from tiny_transformers import CHAT_TEMPLATE, tiny_tokenizer

from specdec_tui.backends import chat_template
from specdec_tui.backends.tokenizer import PromptTokenizer

PROMPT = "why is the sky blue"


def test_chat_templates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 2)  # as endless as ten
    campaign("chat templates", templates())


def templates() -> Callable[[Random], str]:
    tokenizer = tiny_tokenizer()

    def try_one(dice: Random) -> str:
        tokenizer.chat_template = template(dice)
        try:
            prompt = PromptTokenizer(tokenizer).encode(PROMPT, [("hello", "there")] * dice.randrange(3))
        except ValueError as error:
            assert str(error).startswith("the chat template "), f"refused by no one: {error}"
            return check_refusal(error)
        assert prompt.ids, "a prompt without a token"
        bare = "".join(prompt.text.split())
        assert "".join(PROMPT.split()) in bare or prompt.notices, f"lost the prompt without a word: {bare[:100]!r}"
        return "formatted"

    return try_one


def template(dice: Random) -> str:
    if dice.random() < 0.4:
        return damaged(dice, CHAT_TEMPLATE.encode()).decode("utf-8", "replace")
    return "".join(part(dice) for _ in range(dice.randrange(1, 6)))


def part(dice: Random, depth: int = 0) -> str:
    inner = part(dice, depth + 1) if depth < 4 else "{{ messages[-1]['content'] }}"
    text = repr(dice.choice(TEXTS).replace("\ud800", ""))
    return dice.choice(
        (
            "{{ messages[-1]['content'] }}",
            "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}",
            "{% for m in messages %}{% for c in m['content'] %}{{ c.text }}{% endfor %}{% endfor %}",
            f"{{{{ raise_exception({text}) }}}}",
            f"{{{{ {text} }}}}",
            f"{{% for i in range({dice.choice((3, 1000, 10**5, 10**9, 10**18))}) %}}{inner}{{% endfor %}}",
            f"{{{{ {text} * {dice.choice((2, 10**4, 10**9))} }}}}",
            f"{{% set ns = namespace(s='xy') %}}{{% for i in range({dice.choice((4, 20, 60))}) %}}"
            "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s }}",
            "{{ messages[9]['content'].upper() }}",
            "{{ ''.__class__.__mro__ }}",
            "{{ 9 ** 9 ** 9 }}",
            "{{ 1 / 0 }}",
            "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
            "{% include 'x' %}",
            "{{ messages | tojson }}",
            "{{ bos_token }}{{ strftime_now('%Y') }}",
            "{{ '%1000000000d' | format(1) }}",
            f"{{% if messages %}}{inner}{{% endif %}}",
            "{{ undefined.attribute.of.nothing }}",
            "",
        )
    )
