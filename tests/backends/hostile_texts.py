"""Texts on which tokenizers differ: digits, cases, signs, spaces, scripts, emoji, marks that combine, code."""

from __future__ import annotations

import random
from pathlib import Path

FIXED = (
    *(
        "",
        " ",
        "  ",
        "\n",
        "\r\n\r\n",
        "\t\t x",
        " \n \n",
        "a\u00a0b\u2003c",
        "  3 apples",
        "1234567890",
        "12 345,678.90",
    ),
    *(
        "I'LL we'Ve don't 'S 'tis",
        "HTTPServer iPhone McDonald's ÉCOLE straße",
        "ǅ ǆ ʰ ªº",
        "x=1;y<=2!=3",
        "---===>>>```",
    ),
    *(
        "e\u0301 é o\u0308 ö \u0301",
        "क्षत्रिय नमस्ते १२३",
        "العربية ١٢٣ ،؟",
        "中文字符，日本語。한국어 ㈱ ｶﾀｶﾅ ＡＢＣ！",
        "½²³ Ⅻ ٣ ④",
    ),
    *(
        "👍🏽 👩‍👩‍👧 🇩🇪 1️⃣ ☕️",
        "\u200b\u200d\ufeff",
        "\x00\x07\x7f",
        "𝔘𝔫𝔦 𐐀𐐨 𞤀𞥃",
        "'''\"\"\" \\n \\\\",
        "/path/to//file.py\n/\n",
    ),
    "def f(x):\n\treturn x ** 2  # 3.14\n\n\nclass A:\n    pass\n",
    "| a | b |\n|---|---|\n| 1 | 22 | 333 | 4444 |\n",
)
_ALPHABET = (
    "abc XYZ 0123 .,;:!?'\"\n\t\r()[]{}<>|éüßøδжщ中文日本한글العहि👍🏽🇩🇪\u0301\u0308\u200d\u00a0½²Ⅻ٣_-+=/\\*&^%$#@~`▁ĠĊ"
)
_WORDS = (
    "the",
    "The",
    " model",
    "’s",
    "'re",
    "'LL",
    "12",
    "345",
    "\n",
    "  ",
    "    ",
    "é",
    "e\u0301",
    "漢字",
    "🎉",
    ");\n",
)


def hostile_texts(count: int = 400) -> list[str]:
    """The fixed ones, lines of this file, and random ones, always the same."""
    dice = random.Random(0)
    found = [*FIXED, *Path(__file__).read_text(encoding="utf-8").splitlines()]
    for _ in range(count):
        source = _ALPHABET if dice.random() < 0.5 else _WORDS
        found.append("".join(dice.choice(source) for _ in range(dice.randrange(1, 40))))
    return found
