"""How many threads compute unless somebody says otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from radixrt.kernels import cores
from radixrt.kernels.cores import usable_cores


def test_threads_that_share_a_core_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    siblings = {0: "0,4", 1: "1,5", 4: "0,4", 5: "1,5", 7: "3,7"}
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(siblings), raising=False)
    monkeypatch.setattr(cores, "_siblings", siblings.__getitem__)
    monkeypatch.setattr(cores, "_quota", lambda _: None)
    assert usable_cores() == 3


@pytest.mark.parametrize(("quota", "expected"), [(None, 8), (1, 1), (3, 3), (64, 8)])
def test_a_container_s_quota_bounds_them(monkeypatch: pytest.MonkeyPatch, quota: int | None, expected: int) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cores, "_siblings", str)
    monkeypatch.setattr(cores, "_quota", lambda _: quota)
    assert usable_cores() == expected


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"cpu.max": "max 100000\n"}, None),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1),
    ],
)
def test_a_quota_is_read_from_either_kind_of_control_group(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    (tmp_path / "cpu").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert cores._quota(tmp_path) == expected
