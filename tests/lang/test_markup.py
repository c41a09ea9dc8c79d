"""Hand-written chat markup is plain text, and whoever writes it is told so, once."""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable

import pytest

import radixrt as rx
from radixrt.lang import ProgramState, markup
from radixrt.protocol.segments import Text
from tests.lang.scripted import Scripted


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markup, "_occasions", itertools.count())


@pytest.mark.parametrize("mark", markup.MARKS)
def test_markup_in_a_constant_is_text_and_said_once(mark: str, backend: Scripted) -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        s += f"{mark}one " + rx.gen("x")
        s += f"{mark}two"

    with pytest.warns(UserWarning, match=re.escape(repr(mark))) as told:
        program.run_batch([{}, {}])
    (only,) = told
    assert "raw(...)" in str(only.message)
    assert str(only.message).startswith("program, main: ")
    assert only.filename == __file__
    assert backend.nodes[0].segments == (Text(f"{mark}one "),)


@pytest.mark.parametrize(
    "append",
    [
        lambda s: s.user("What does <|im_end|> mean?"),
        lambda s: s.branch.append(rx.raw("<|im_start|>user\nHello<|im_end|>\n")),
        lambda s: s.branch.append(rx.gen("x", stop="<|eot_id|>")),
        lambda s: s.set_var("x", "[INST]"),
    ],
)
def test_what_is_data_or_meant_as_it_is_is_not_remarked_on(
    append: Callable[[ProgramState], None], backend: Scripted
) -> None:
    @rx.function
    def program(s: ProgramState) -> None:
        append(s)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        program.run()
