"""What a download and a load show, in a terminal and in a log."""

from __future__ import annotations

import sys
import time

import pytest

from radixrt.client.progress import ERASE, LoadLine, ProgressLine, print_above


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


@pytest.fixture
def quick_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("radixrt.client.progress._TICK_SECONDS", 0.001)


@pytest.mark.usefixtures("quick_ticks")
def test_a_load_counts_seconds_in_a_terminal_and_leaves_nothing_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    shown = ""
    with LoadLine("small"):
        while shown.count("(0 s)") < 3:
            shown += capsys.readouterr().err
            time.sleep(0.001)
    shown += capsys.readouterr().err
    lines = shown.removesuffix(ERASE).split(ERASE)
    assert set(lines[1:]) == {"radixrt: loading small (0 s)\r"}
    assert shown.endswith(ERASE)
    assert "\n" not in shown


@pytest.mark.usefixtures("quick_ticks")
def test_a_log_hears_nothing_of_a_load(capsys: pytest.CaptureFixture[str]) -> None:
    with LoadLine("small"):
        time.sleep(0.01)
    assert capsys.readouterr().err == ""


def test_a_line_takes_the_place_of_the_load_line_in_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_above("ready\n")
    assert capsys.readouterr().err == "ready\n"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    print_above("ready\n")
    assert capsys.readouterr().err == f"{ERASE}ready\n"


def test_a_load_that_fails_leaves_nothing_in_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(KeyboardInterrupt), LoadLine("small"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err.endswith(ERASE)
