"""How a text is cut into words before bytes are merged, by the names that GGUF files have for it.

A file names its way (`tokenizer.ggml.pre`) and says no more of it. Names are llama.cpp's (`src/llama-vocab.cpp`);
the patterns are those of the tokenizers that the models were trained with, from which llama.cpp's own are derived, so
ids are theirs also where llama.cpp's differ (it brings no text into normal form C, and knows letters' cases in ASCII
alone).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tokenizers import Regex, normalizers, pre_tokenizers


@dataclass(frozen=True)
class Words:
    """`cuts`: patterns and steps that cut one after the other. `composed`: the text is brought into form C before.

    `whole`: a word that is a token becomes it, whatever merges say. `begins`: texts begin with the beginning token
    where the file does not say.
    """

    cuts: tuple[str, ...]
    composed: bool = False
    whole: bool = False
    begins: bool = False

    def pre_tokenizer(self) -> pre_tokenizers.PreTokenizer:
        steps = [_STEPS[cut]() if cut in _STEPS else _split(cut) for cut in self.cuts]
        if not set(self.cuts) & _IN_BYTES:
            steps.append(_bytes(use_regex=False))
        return steps[0] if len(steps) == 1 else pre_tokenizers.Sequence(steps)

    def normalizer(self) -> normalizers.Normalizer | None:
        return normalizers.NFC() if self.composed else None


def _split(pattern: str) -> pre_tokenizers.PreTokenizer:
    return pre_tokenizers.Split(Regex(pattern), "isolated")


_bytes = partial(pre_tokenizers.ByteLevel, add_prefix_space=False)
# Steps that are no pattern: each digit alone, runs of digits, runs of punctuation, the words of GPT-2 as bytes.
_DIGIT, _DIGITS, _PUNCTUATION, _GPT2 = "<digit>", "<digits>", "<punctuation>", "<gpt-2>"
_STEPS: dict[str, Callable[[], pre_tokenizers.PreTokenizer]] = {
    _DIGIT: partial(pre_tokenizers.Digits, individual_digits=True),
    _DIGITS: partial(pre_tokenizers.Digits, individual_digits=False),
    _PUNCTUATION: partial(pre_tokenizers.Punctuation, "contiguous"),
    _GPT2: partial(_bytes, use_regex=True),
}
_IN_BYTES = {_GPT2}

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LLAMA3 = rf"{_ENDINGS}|{_WORD}|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
_QWEN2 = rf"{_ENDINGS}|{_WORD}|\p{{N}}|{_SIGNS}|{_SPACES}"
_QWEN35 = rf"{_ENDINGS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
_SEED = rf"{_ENDINGS}|{_WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}"
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
# Words whose capitals come first.
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASES = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{{0}}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{{0}}"
_CASED_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_TEKKEN = rf"{_CASES.replace('{0}', '')}|\p{{N}}|{_CASED_SIGNS}|{_SPACES}"
_GPT4O = rf"{_CASES.replace('{0}', _ENDINGS + '?')}|\p{{N}}{{1,3}}|{_CASED_SIGNS}|{_SPACES}"
_BLOOM = r" ?[^(\s|[.,!?…。，、।۔،])]+"
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝ"
    r"\x{1F5F}-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    r"𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
)
_DEEPSEEK_LLM = (
    *(r"[\r\n]", _DEEPSEEK_LETTERS, r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+"),
    _DIGIT,
)
_DEEPSEEK_CODER = (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", _DIGIT)
_DEEPSEEK_3 = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    rf"|{_SPACES}",
)
# llama.cpp's own, of files that do not name theirs: a text is cut more often than by any model's.
_DEFAULT = (
    r"[\p{P}\$\+<=>\^~\|]+",
    r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
    r"\p{N}+",
    r"[0-9][0-9][0-9]",
)

_META = Words((_LLAMA3,), whole=True, begins=True)
_BY_NAMES: dict[tuple[str, ...], Words] = {
    ("default",): Words(_DEFAULT),
    ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"): _META,
    ("dbrx", "smaug-bpe", "chatglm-bpe", "glm4"): Words((_LLAMA3,)),
    ("qwen2", "deepseek-r1-qwen", "megrez"): Words((_QWEN2,), composed=True),
    ("qwen35",): Words((_QWEN35,), composed=True),
    ("stablelm2", "hunyuan", "kormo", "grok-2"): Words((_QWEN2,)),
    ("deepseek-llm",): Words(_DEEPSEEK_LLM),
    ("deepseek-coder",): Words(_DEEPSEEK_CODER),
    ("deepseek-v3", "hunyuan-dense"): Words(_DEEPSEEK_3),
    ("falcon",): Words((_PUNCTUATION, _GPT2, _DIGITS, "[0-9][0-9][0-9]")),
    ("smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b"): Words((_DIGIT, _GPT2)),
    ("command-r",): Words((_DIGIT, _GPT2), composed=True),
    ("gpt-2", "phi-2", "gigachat", "a.x-4.0", "mellum", "jais", "trillion", "granite-docling", "exaone4"): Words(
        (_GPT2,)
    ),
    ("mpt", "olmo"): Words((_GPT2,), composed=True),
    ("bloom", "gpt3-finnish", "poro-chat"): Words((_BLOOM,)),
    ("viking",): Words((_BLOOM, _DIGIT)),
    ("tekken",): Words((_TEKKEN,), whole=True, begins=True),
    ("gpt-4o", "llama4", "kanana2", "minimax-m2"): Words((_GPT4O,)),
    ("bailingmoe", "bailingmoe2", "llada-moe"): Words((_BAILING,)),
    ("seed-coder",): Words((_SEED,)),
}
WORDS = {name: words for names, words in _BY_NAMES.items() for name in names}
