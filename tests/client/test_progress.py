"""What a download shows, in a terminal and in a log."""

from __future__ import annotations

import sys

import pytest

from radixrt.client.progress import ProgressLine


def show() -> None:
    with ProgressLine() as progress:
        for done in (0, 50, 100):
            progress("download", done * 10**6, 100 * 10**6)
        progress("unpack", 10**6, 10**6)


def test_a_log_gets_one_line_a_stage(capsys: pytest.CaptureFixture[str]) -> None:
    show()
    assert capsys.readouterr().err == "radixrt: download of 100 MB\nradixrt: unpack of 1 MB\n"


def test_a_terminal_gets_one_line_that_counts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    show()
    lines = capsys.readouterr().err.removesuffix("\n").split("\r")
    assert [line.rstrip() for line in lines[1:4]] == [f"radixrt: download {n:3}% of 100 MB" for n in (0, 50, 100)]
    assert lines[4].rstrip() == "radixrt: unpack 100% of 1 MB"


def test_nothing_is_shown_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with ProgressLine():
        pass
    assert capsys.readouterr().err == ""
