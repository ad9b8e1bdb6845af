"""The words of the command line: each is checked where it is read, so that no stage meets nonsense."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from dataclasses import Field
from typing import Any, NoReturn

import torch

_MOST = 2**31 - 1
_FROM_ZERO = ("seed", "held_out")


class Parser(argparse.ArgumentParser):
    """A parser that says what is wrong in one line, and ends with status 2."""

    def error(self, message: str) -> NoReturn:
        """As argparse does it, without the usage."""
        self.exit(2, f"{self.prog}: {' '.join(message.split())}\n")


def whole(least: int) -> Callable[[str], int]:
    """Reads a whole number of at least `least`."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = -1
        if not least <= value <= _MOST:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {_MOST}")
        return value

    return read


def number(above_zero: bool) -> Callable[[str], float]:
    """Reads a finite number that is not negative; `above_zero` excludes 0 too."""

    def read(text: str) -> float:
        value = _float(text)
        if not 0 <= value < math.inf or (above_zero and not value):
            raise argparse.ArgumentTypeError(f"{text!r} is not a number {'above 0' if above_zero else 'from 0 on'}")
        return value

    return read


def amount(text: str) -> int:
    """Reads a number of tokens of at least 1, which may be written as 1e8."""
    value = _float(text)
    if not 1 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not an amount of at least 1, such as 1e8")
    return int(value)


def plain_name(text: str) -> str:
    """Reads the name of a candidate, which is a folder of the run and nowhere else."""
    if not re.fullmatch(r"\w[\w.-]*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a plain folder name (letters, digits, _ . -)")
    return text


def one_line(text: str) -> str:
    """Reads words for the model card."""
    if not text.strip() or not text.isprintable():
        raise argparse.ArgumentTypeError(f"{text!r} is not a line of text")
    return text.strip()


def device(text: str) -> str:
    """Reads a device that is there: cpu, cuda or cuda:N."""
    try:
        named = torch.device(text)
    except RuntimeError:
        named = torch.device("meta")
    if named.type == "cpu" or (named.type == "cuda" and (named.index or 0) < torch.cuda.device_count()):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not a device of this machine (cpu, or cuda where torch finds a GPU)")


def of_field(field: Field[Any]) -> Callable[[str], Any]:
    """The reader for a field of settings: counts from 1 on, weights from 0 on."""
    if isinstance(field.default, int):
        return whole(0 if field.name in _FROM_ZERO else 1)
    return number(above_zero=field.name == "peak")


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
