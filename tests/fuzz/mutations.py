"""What hostile inputs are made of: values no one expects, and changes to valid ones."""

from __future__ import annotations

from random import Random
from typing import Any

TEXTS = (
    "",
    " ",
    "\x1b]52;c;aGVsbG8=\x07",
    "\x1b[2J\x1b[31m",
    "\x9b31m",
    "\u202eevil\u202c",
    "\u2028",
    "\x00",
    "[/b][red]",
    "=cmd|' /C calc'!A0",
    "<script>alert(1)</script>",
    "雲の中",
    "🦊" * 40,
    "e\u0301" * 30,
    "../../../../etc/passwd",
    "/dev/zero",
    "NaN",
    "x" * 5000,
    "{{ 7 * 7 }}",
    "\ud800",
    "\ufeff",
)
NUMBERS = (0, -1, 1, 2, 7, 255, 65536, 10**7, 2**31, 2**63, 10**18, 10**40, -(10**18), 0.5, -0.0, 1e-300, 1e300)
ODD = (None, True, False, [], {}, float("inf"), float("-inf"), float("nan"))


def value(dice: Random, depth: int = 0) -> Any:
    """Any JSON value, likely not the one that is wanted."""
    match dice.randrange(7 if depth < 3 else 5):
        case 0 | 1:
            return dice.choice(TEXTS)
        case 2 | 3:
            return dice.choice(NUMBERS)
        case 4:
            return dice.choice(ODD)
        case 5:
            return [value(dice, depth + 1) for _ in range(dice.choice((1, 2, 3, 400)))]
        case _:
            return {dice.choice(TEXTS): value(dice, depth + 1) for _ in range(3)}


def nested(dice: Random) -> str:
    """JSON of many brackets."""
    deep = dice.choice((50, 2000, 100_000))
    opening, closing = dice.choice((("[", "]"), ('{"a":', "}")))
    return opening * deep + "1" + closing * deep


def changed(dice: Random, whole: Any) -> Any:
    """A copy of a JSON value with one change, anywhere in it."""
    if isinstance(whole, dict) and whole and dice.random() < 0.9:
        key = dice.choice(list(whole))
        match dice.randrange(8):
            case 0:
                return {name: part for name, part in whole.items() if name != key}
            case 1:
                return {**whole, dice.choice(TEXTS): value(dice)}
            case _:
                return {**whole, key: changed(dice, whole[key])}
    if isinstance(whole, list) and whole and dice.random() < 0.9:
        place = dice.randrange(len(whole))
        match dice.randrange(8):
            case 0:
                return whole[:place] + whole[place + 1 :]
            case 1:
                return whole[:place] + [whole[place]] * dice.choice((2, 30, 3000)) + whole[place:]
            case _:
                return [*whole[:place], changed(dice, whole[place]), *whole[place + 1 :]]
    return like(dice, whole) if dice.random() < 0.6 else value(dice)


def like(dice: Random, whole: Any) -> Any:
    """Another value of the same type, which is read more often than any value is."""
    match whole:
        case bool():
            return not whole
        case int() | float():
            return dice.choice((whole + 1, whole - 1, -whole, whole * 2, whole / 2, dice.choice(NUMBERS)))
        case str():
            return dice.choice((dice.choice(TEXTS), whole + dice.choice(TEXTS), whole[:-1]))
        case _:
            return value(dice)


def damaged(dice: Random, data: bytes) -> bytes:
    """Bytes with a few of them changed, taken out, doubled or cut off."""
    for _ in range(dice.choice((1, 1, 2, 5))):
        begin = dice.randrange(len(data) + 1)
        end = min(len(data), begin + dice.choice((1, 2, 10, 200)))
        match dice.randrange(6):
            case 0:
                data = data[:begin]
            case 1:
                data = data[:begin] + data[end:]
            case 2:
                data = data[:end] + data[begin:end] * dice.choice((1, 2, 50)) + data[end:]
            case 3:
                data = data[:begin] + bytes(dice.randrange(256) for _ in range(end - begin)) + data[end:]
            case 4:
                data = data[:begin] + dice.choice(TEXTS).encode("utf-8", "surrogatepass") + data[begin:]
            case _:
                data = data[:begin] + str(dice.choice(NUMBERS)).encode() + data[end:]
    return data
