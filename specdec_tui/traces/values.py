"""Typed values out of parsed JSON: each reader returns the value, or raises BadField with what is allowed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from math import isfinite
from typing import Any

MOST = 2**53  # the largest whole number that every JSON reader keeps exactly
LARGEST = 1e12  # the largest figure


class BadField(ValueError):
    """A field that is missing or wrong: `field` is its name, `problem` says what is allowed."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"field '{field}' {problem}")
        self.field, self.problem = field, problem


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: dataclasses as objects, tuples as lists, NaN and infinities as None."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Enum):
        return plain(value.value)
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(key): plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(part) for part in value]
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def shown(value: Any) -> str:
    """A wrong value as it may stand in a one-line message, cut to a readable length."""
    text = ascii(value)
    return text if len(text) <= 40 else text[:37] + "..."


def present(table: Mapping[str, Any], field: str) -> Any:
    if field not in table:
        raise BadField(field, "is missing")
    return table[field]


def text(table: Mapping[str, Any], field: str, longest: int | None = None) -> str:
    value = present(table, field)
    if type(value) is not str:
        raise BadField(field, f"must be a text, not {shown(value)}")
    if longest is not None and len(value) > longest:
        raise BadField(field, f"must be a text of at most {longest:,} characters")
    return value


def whole(table: Mapping[str, Any], field: str) -> int:
    value = present(table, field)
    if type(value) is not int or not 0 <= value <= MOST:
        raise BadField(field, f"must be a whole number from 0 on, not {shown(value)}")
    return value


def checked_number(field: str, value: Any) -> float | None:
    """`value` as a float where it is a number that a table has room for, None where it is null."""
    if value is None:
        return None
    if type(value) in (int, float) and -LARGEST <= value <= LARGEST:
        return float(value)
    raise BadField(field, f"must be a number of at most {LARGEST:.0e} or null, not {shown(value)}")


def mapping(table: Mapping[str, Any], field: str) -> dict[str, Any]:
    value = present(table, field)
    if type(value) is not dict:
        raise BadField(field, f"must be an object, not {shown(value)}")
    return value
