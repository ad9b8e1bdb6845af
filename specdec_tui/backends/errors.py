"""What went wrong inside a model, as one plain sentence for a person."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.remote.errors import ServerError

_LACKS = re.compile(r"has no attribute '([^']*)'")
_OUT_OF_MEMORY = (
    "out of memory",
    "not enough memory",
    "can't allocate",
    "cannot allocate",
    "unable to allocate",
    "failed to allocate",
    "bad_alloc",
    "bad allocation",
    "storage size calculation overflowed",
    "array is too big",
    "maximum supported dimension",
)


class NotDone(ValueError):
    """What is asked and cannot be done exactly: a sentence of ours."""


@contextmanager
def panics_raise() -> Iterator[None]:
    """A panic of a library written in Rust, which is no Exception, as the ValueError that it should have been."""
    try:
        yield
    except BaseException as panic:
        if type(panic).__name__ != "PanicException":
            raise
        raise ValueError(str(panic)) from panic


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short here, also where another error came of that."""
    if isinstance(error, ServerError) or isinstance(error.__cause__, ServerError):
        return False
    text = str(error).lower()
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return True
    before = error.__cause__ or error.__context__
    return before is not None and is_out_of_memory(before)


def first_line(error: BaseException) -> str:
    """What an exception says, as one line for a person; its type where it says nothing.

    A line that only announces the next one ("Validation error for field 'x':") is told with it; of a file's
    error its name and the reason are, without the number.
    """
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]


def plainly(error: BaseException) -> str:
    """The same for errors that are words of Python alone: a KeyError says nothing but the key."""
    text = first_line(error)
    if isinstance(error, KeyError):
        said = first_line(Exception(*error.args))
        return said if " " in said else f"{said!r} is not there, or not known"
    if isinstance(error, EOFError):
        return "it ends too early"
    if isinstance(error, AttributeError) and (found := _LACKS.search(text)):
        return f"{found[1]!r} is not there"
    if isinstance(error, ZeroDivisionError):
        return "one of its sizes is zero"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if "UTF-8 BOM" in text:
        return "a JSON file of it begins with a byte order mark: save it without"
    return text if text else type(error).__name__


# What Python, torch and their libraries say of values that they cannot take, which tells a person nothing.
_RAW = re.compile(
    r"is not there|object has no attribute|'\w+' object |\w+Error\b|storage object|unsupported operand|unhashable type"
    r"|literal for int|cannot convert|could not convert|argument must be|\bargument '\w+' must be|not supported between"
    r"|too big to convert|[Oo]verflow|negative dimension"
    r"|bounds? inconsistent|<class '|dictionary update sequence|positional argument|keyword argument"
    r"|untagged enum|failed to extract enum|cannot reshape array|indices must be integers"
    r"|out of range|index out of bounds"
    r"|TextEncodeInput|not subscriptable|NoneType|one of its sizes is zero"
)


def is_raw(words: str) -> bool:
    """Whether they are words of a library over its own variables, in place of what is wrong with a model."""
    return _RAW.search(words) is not None


def in_words(error: BaseException, otherwise: str) -> str:
    """What an error says where that is a sentence; else what it comes to, and what was missed where that is named."""
    said = plainly(error)
    if not is_raw(said):
        return said
    if isinstance(error, KeyError) and error.args and re.fullmatch(r"[A-Za-z_]\w{0,60}", str(error.args[0])):
        return f"{otherwise}: {error.args[0]!r} is missing"
    missed = re.search(r"'\w*Config' object has no attribute '(\w+)'", str(error))
    return f"{otherwise}: {missed[1]!r} is missing" if missed else otherwise


def describe_error(error: Exception) -> str:
    """One plain sentence for a person."""
    if is_out_of_memory(error):
        return "out of memory: try a shorter prompt, fewer new tokens, a smaller gamma, or quantized models"
    name, text = type(error).__name__, first_line(error)
    # These are raised here alone, in whole sentences.
    return (
        text
        if isinstance(error, FloatingPointError | LoadError | NotDone | ServerError) or text == name
        else f"{name}: {text}"
    )
