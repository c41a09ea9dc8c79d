"""The constraint engine alone: `radixrt.grammar.compile` and verdicts on texts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import radixrt
from radixrt import grammar
from radixrt.errors import InvalidConstraint, InvalidRequest
from radixrt.grammar.verdict import Verdict
from radixrt.protocol.constraint import Regex
from radixrt.text.tokenizer import Tokenizer


def test_a_verdict_says_how_many_bytes_fit() -> None:
    dates = grammar.compile(json_schema={"type": "string", "format": "date"})
    assert dates.check('"2024-02-29"') == Verdict("accepted", 12)
    assert dates.check('"2023-02-29"') == Verdict("rejected", 10)
    assert dates.check('"2023-02') == Verdict("incomplete", 8)
    assert grammar.compile(regex="é+b").check("ééc") == Verdict("rejected", 4)
    with pytest.raises(InvalidRequest, match="surrogate"):
        dates.check("\ud800")


@pytest.mark.parametrize("backend", ["auto", "llguidance", "outlines-core"])
def test_every_backend_gives_the_same_verdicts(backend: str) -> None:
    compiled = grammar.compile(choices=["in", "into"], backend=backend)
    assert compiled.backend == ("outlines-core" if backend == "outlines-core" else "llguidance")
    assert [compiled.check(text).outcome for text in ("in", "int", "into", "on")] == [
        "accepted",
        "incomplete",
        "accepted",
        "rejected",
    ]


def test_a_model_s_tokenizer_may_be_given(words: Tokenizer) -> None:
    compiled = grammar.compile(Regex("(harbour|boats)"), tokenizer=words)
    ids = words.encode("harbour").tolist()
    assert len(ids) < len("harbour")
    matcher = compiled.matcher()
    assert matcher.try_accept(ids) == len(ids)
    assert matcher.is_finished
    assert compiled.check("harbor") == Verdict("rejected", 5)


@pytest.mark.parametrize("given", [{}, {"regex": "a", "json_object": True}, {"regex": 7}])
def test_there_is_exactly_one_constraint(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        grammar.compile(**given)


def test_what_the_first_backend_says_is_told() -> None:
    with pytest.raises(InvalidConstraint, match="#: contains"):
        grammar.compile(json_schema={"contains": {}})


def test_importing_is_quick_and_lazy() -> None:
    assert radixrt.grammar is grammar
    script = (
        "import radixrt.grammar, sys; print({'llguidance', 'outlines_core', 'tokenizers', 'numpy'} & {*sys.modules})"
    )
    seen = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert seen.stdout.strip() == "set()"
