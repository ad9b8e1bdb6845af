"""Chat templates are programs of others: the prompt must come out of them, in bounded time and size."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time

import pytest
from tiny_transformers import CHAT_TEMPLATE, tiny_tokenizer

from specdec_tui.backends import chat_template, template_process
from specdec_tui.backends.in_time import Stopped
from specdec_tui.backends.tokenizer import PromptTokenizer

EACH = "{% for m in messages %}[{{ m.role }}]"
PARTS = (
    EACH + "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}{% endfor %}"
)
HISTORY = [("the dog?", "a dog")]


def tokenizer(template: str) -> PromptTokenizer:
    return PromptTokenizer(tiny_tokenizer(chat_template=template), "a/model")


def text_of(template: str, prompt: str = "the cat sat") -> str:
    return tokenizer(template).encode(prompt, HISTORY).text


@pytest.mark.each_value
@pytest.mark.parametrize(
    "template",
    [
        CHAT_TEMPLATE,
        EACH + "{{ m.content | trim }}{% if loop.last %}{% break %}{% endif %}{% endfor %}",
        EACH + "{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}{{ eos_token }}",
        "{% set ns = namespace(n=0) %}" + EACH + "{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ m.content }}{% endfor %}",
        EACH + "{{ m | tojson }}{{ dict(a=1).a }}{% endfor %}{% if tools is none %}no tools{% endif %}",
        "{%- for m in messages -%}\n  {{- m['content'] -}}\n{%- endfor %}\n{% if documents %}{{ 1 }}{% endif %}",
    ],
)
@pytest.mark.parametrize("prompt", ["the cat sat", ' a\n"quoted" <tag> 😀 界 ', "\u2028é\x07"])
def test_a_conversation_reads_as_transformers_would_write_it(template: str, prompt: str) -> None:
    messages = [
        {"role": "user", "content": "the dog?"},
        {"role": "assistant", "content": "a dog"},
        {"role": "user", "content": prompt},
    ]
    own = tokenizer(template)
    expected = own.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert own.encode(prompt, HISTORY).text == expected


def test_a_template_that_wants_lists_of_parts_gets_them() -> None:
    assert text_of(PARTS) == "[user]the dog?[assistant]a dog[user]the cat sat"


@pytest.mark.parametrize(
    "template", ["", " ", "{{ bos_token }}", EACH + "{% endfor %}the cat sat", "{{ '' }}[assistant]"]
)
def test_a_template_that_loses_the_prompt_is_refused_by_name(template: str) -> None:
    if not template:
        assert not tokenizer(template).has_chat_template
        return
    with pytest.raises(
        ValueError, match=r"^the chat template of a/model leaves the prompt out of what the model is giv"
    ):
        text_of(template)


def test_what_a_template_of_strings_makes_of_parts_is_no_reason() -> None:
    with pytest.raises(ValueError, match="leaves the prompt out"):
        text_of(EACH + "{{ m.content.split(' ')[0] }}{% endfor %}", "the cat sat on the mat")


def test_a_template_that_keeps_a_little_of_the_prompt_is_refused() -> None:
    with pytest.raises(ValueError, match="leaves the prompt out"):
        text_of(EACH + "{{ m.content[:5] }}{% endfor %}", "the cat sat on the mat")


@pytest.mark.parametrize("change", ["upper", "replace('cat', 'dog')", "e", "tojson", "title"])
def test_a_template_that_changes_the_prompt_says_so(change: str) -> None:
    prompt = 'the cat sat on the "mat" & slept'
    given = tokenizer(EACH + "{{ m.content | " + change + " }}{% endfor %}").encode(prompt)
    assert [n for n in given.notices if "changes the prompt's text" in n]
    assert not tokenizer(EACH + "{{ m.content | trim }}{% endfor %}").encode(f"  {prompt}\n").notices


def test_a_template_that_forgets_the_conversation_says_so() -> None:
    own = tokenizer("[user]{{ messages[-1].content }}")
    assert own.encode("the cat", HISTORY).notices == (
        "the chat template leaves out the earlier turns of the conversation",
    )
    assert own.encode("the cat").notices == () == tokenizer(CHAT_TEMPLATE).encode("the cat", HISTORY).notices


@pytest.mark.parametrize("prompt", ["?", "→ →", "<&>", "…\n…"])
def test_a_prompt_without_a_word_is_missed_as_well(prompt: str) -> None:
    assert text_of(CHAT_TEMPLATE, prompt)
    with pytest.raises(ValueError, match="leaves the prompt out"):
        text_of("? → → <&> …\n…", prompt)


@pytest.mark.parametrize(
    "template",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = b %}{% endfor %}{% endfor %}",
        "{{ 10 ** (10 ** 9) }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{{ 'x' * 10 ** 12 }}",
        "{{ ('x' * 10 ** 8) | list | sort | join }}",
        "{% for a in range(99999) %}{{ 'a' * 9999 }}{% endfor %}",
        "{{ '%999999999d' | format(1) }}",
        "{{ range(10 ** 18) | list }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ raise_exception('no') }}",
        "{{ messages.nothing.more }}",
        "{% if %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}{{ 1 / 0 }}",
    ],
)
def test_an_endless_or_exploding_template_ends_with_a_reason(template: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"^the chat template of a/model ") as refused:
        text_of(template)
    assert time.monotonic() - began < 20
    assert "\n" not in str(refused.value) and len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ raise_exception('') }}", "cannot format this conversation: it gives no reason"),
        ("{{ 10 ** 5000 }}", "cannot format this conversation: it writes a number of more than 4,300 digits"),
        ("{{ range(10 ** 6) | list }}", "cannot format this conversation: it counts further than 100,000"),
    ],
)
def test_what_a_template_may_not_is_said_in_words_of_ours(template: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^the chat template of a/model {re.escape(said)}$"):
        text_of(template)


def test_both_forms_of_contents_share_one_bound_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[float] = []

    def ask(_question: str, end: float, _cancelled: object) -> list[dict[str, str]]:
        ends.append(end)
        return [{"error": "no"}] * 3

    monkeypatch.setattr(chat_template, "_ask", ask)
    began = time.monotonic()
    with pytest.raises(ValueError, match="cannot format this conversation: no"):
        text_of(CHAT_TEMPLATE)
    assert len(ends) == 2 and ends[0] == ends[1] and began <= ends[0] - chat_template.SECONDS <= time.monotonic()


def test_a_long_prompt_arrives_whole() -> None:
    prompt = "the cat sat on the mat. " * 40_000
    assert text_of(CHAT_TEMPLATE, prompt).count(prompt) == 1


def test_the_bound_in_time_is_kept_to_and_is_one_that_a_person_waits_for(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 5 <= chat_template.SECONDS <= 20
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    began = time.monotonic()
    with pytest.raises(ValueError, match=r"^the chat template of a/model does not end within 1 seconds$"):
        text_of("{{ 10 ** (10 ** 9) }}")
    assert time.monotonic() - began < 5.5  # a renderer left alone ends by itself after 6


@pytest.mark.skipif(sys.platform == "win32", reason="no alarms")
def test_a_rendering_left_alone_has_seconds_more_than_one_that_is_waited_for() -> None:
    assert 1 <= template_process._LATE <= 20


@pytest.mark.parametrize(
    ("times", "more", "fits"), [(1, 900_000, True), (1, 1_100_000, False), (4, 900_000, True), (5, 900_000, False)]
)
def test_a_template_may_write_a_million_characters_beyond_four_times_the_conversation(
    times: int, more: int, fits: bool
) -> None:
    template = "{{ messages[-1].content * " + str(times) + " }}{{ '-' * " + str(more) + " }}"
    own, prompt = tokenizer(template), "the cat sat " * 20_000
    room = 4 * len(prompt) + 1_000_000
    if times == 1:
        prompt, room = "the cat", 4 * len("the cat") + 1_000_000
    if fits:
        text, _ = chat_template.apply_template(own.tokenizer, prompt, ())
        assert len(text) == times * len(prompt) + more
        return
    with pytest.raises(ValueError, match=f"it writes more than {room:,} characters"):
        chat_template.apply_template(own.tokenizer, prompt, ())


@pytest.mark.skipif(sys.platform != "linux", reason="no bound on a process's memory")
def test_a_template_may_take_a_gigabyte_of_memory() -> None:
    assert text_of("{{ ('x' * 2 ** 28) | length }} {{ messages[-1].content }}") == f"{2**28} the cat sat"
    with pytest.raises(ValueError, match="it takes more than 1 GB of memory"):
        text_of("{{ ('x' * 2 ** 31) | length }} {{ messages[-1].content }}")


def test_what_a_template_raises_is_cut() -> None:
    with pytest.raises(ValueError) as refused:
        text_of("{{ raise_exception('ab' * 100000) }}")
    assert 300 < len(str(refused.value)) < 400


def test_half_a_character_is_the_templates_fault_and_not_the_tokenizers() -> None:
    with pytest.raises(ValueError, match="the chat template of a/model writes half a character"):
        tokenizer(r"{{ '\ud800' }}{{ messages[-1].content }}").encode("the cat")


def test_a_template_that_never_ends_stops_when_the_run_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 60)
    cancelled = threading.Event()
    threading.Timer(0.5, cancelled.set).start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        tokenizer("{{ 10 ** (10 ** 9) }}").encode("x", cancelled=cancelled.is_set)
    assert time.monotonic() - began < 30


@pytest.mark.skipif(sys.platform == "win32", reason="no alarms")
def test_a_rendering_that_nobody_waits_for_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"template": "{{ 10 ** (10 ** 9) }}", "variables": {}, "conversations": [[]], "longest": 9, "seconds": -4}
    command = [sys.executable, template_process.__file__]
    done = subprocess.run(command, input=json.dumps(asked), text=True, capture_output=True, timeout=30)
    assert done.returncode < 0 and not done.stdout


def test_what_a_template_raises_says_nothing_that_a_terminal_obeys() -> None:
    with pytest.raises(ValueError, match="cannot format this conversation") as refused:
        text_of(r"{{ raise_exception('a\x1b]52;c;aGk=\x07b\u202ec\u009bd' ~ '\n' ~ 'e') }}")
    assert str(refused.value).isprintable()
    assert str(refused.value).endswith("a␛]52;c;aGk=␇b⇆c␦d e")


def test_templates_by_name_are_told_apart() -> None:
    own = tokenizer(CHAT_TEMPLATE)
    own.tokenizer.chat_template = {"default": EACH + "{{ m.content }}{% endfor %}", "rag": "nothing"}
    assert own.encode("the cat").text == "[user]the cat"
    own.tokenizer.chat_template = {"rag": "nothing"}
    with pytest.raises(ValueError, match=r"^the chat template of a/model"):
        own.encode("the cat")


def test_modules_of_the_present_folder_are_not_taken(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:  # type: ignore[no-untyped-def]
    for name in ("jinja2", "json", "datetime"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert "the cat sat" in text_of(CHAT_TEMPLATE)
