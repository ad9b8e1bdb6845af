"""Tests can be collected together: two files of one name are one module to pytest."""

from collections import Counter
from pathlib import Path


def test_no_two_files_of_tests_have_one_name() -> None:
    names = Counter(path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py")
    assert [name for name, count in names.items() if count > 1] == []
