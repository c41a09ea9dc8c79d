"""The cache is recounted when the worker idles, and what is found is neither ignored nor survived."""

from __future__ import annotations

import logging

import pytest

from radixrt.cache.invariants import BrokenInvariant
from radixrt.worker import idle_check
from radixrt.worker.idle_check import EVERY_SECONDS, QUIET_SECONDS, IdleCheck
from tests.worker.test_next_uses import AGENT, World, node


class Idle:
    """A world that has computed something, and its check under a clock of the test's."""

    def __init__(self) -> None:
        self.world = World()
        self.now = 100.0
        self.check = IdleCheck(self.world.programs, lambda: self.now)
        self.compute(1)

    def compute(self, program: int) -> None:
        self.world.submit(AGENT, program, node(1, None, self.world.prompt(20)))
        self.world.run()

    def spoil(self) -> None:
        self.world.cache._tree.evictable += 1


def test_a_check_is_due_when_nothing_has_come_for_a_while_and_not_twice_for_the_same_steps() -> None:
    idle = Idle()
    assert idle.check.wait_ms() == 1000 * QUIET_SECONDS
    idle.check.run()
    assert idle.check.wait_ms() is None


def test_checks_keep_their_distance() -> None:
    idle = Idle()
    idle.check.run()
    idle.compute(2)
    idle.now += 10
    assert idle.check.wait_ms() == 1000 * (EVERY_SECONDS - 10)
    idle.now += EVERY_SECONDS
    assert idle.check.wait_ms() == 1000 * QUIET_SECONDS


def test_a_broken_invariant_is_logged_with_the_trees_state_and_comes_out(caplog: pytest.LogCaptureFixture) -> None:
    idle = Idle()
    idle.spoil()
    with pytest.raises(BrokenInvariant, match="count as evictable"):
        idle.check.run()
    (record,) = caplog.records
    assert record.levelno == logging.CRITICAL
    assert "count as evictable" in record.getMessage()
    assert "[ids " in record.getMessage()


def test_a_page_that_nobody_gave_back_is_found() -> None:
    idle = Idle()
    assert idle.world.cache.allocate(1) is not None
    with pytest.raises(BrokenInvariant, match="nobody holds"):
        idle.check.run()


def test_a_tree_too_large_to_be_walked_in_a_moment_is_left_out_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    idle = Idle()
    idle.spoil()
    monkeypatch.setattr(idle_check, "MOST_PAGES", 1)
    idle.check.run()
    assert "is not checked when idle" in caplog.text
