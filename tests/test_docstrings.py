from __future__ import annotations

import doctest
from importlib import import_module

import pytest

from tests.import_rules import module_name, package_files

WITH_EXAMPLES = sorted(module_name(inside) for inside, path in package_files() if ">>> " in path.read_text())


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_in_docstrings_are_true(name: str) -> None:
    outcome = doctest.testmod(import_module(name))
    assert outcome.attempted > 0
    assert outcome.failed == 0
