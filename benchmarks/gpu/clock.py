"""Seconds on a device."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median

import torch


def seconds(device: torch.device, run: Callable[[], object], rounds: int, warm_up: int = 2) -> float:
    """Median seconds from a call of `run` to the end of all that it launched; nothing else is under way."""
    for _ in range(warm_up):
        run()
    times = []
    for _ in range(rounds):
        wait(device)
        start = time.perf_counter()
        run()
        wait(device)
        times.append(time.perf_counter() - start)
    return median(times)


def seconds_in_a_row(device: torch.device, run: Callable[[], object], rounds: int, warm_up: int = 2) -> float:
    """Seconds of a call among `rounds` that follow each other: what the device takes if it is never kept waiting."""
    for _ in range(warm_up):
        run()
    wait(device)
    start = time.perf_counter()
    for _ in range(rounds):
        run()
    wait(device)
    return (time.perf_counter() - start) / rounds


def seconds_on_device(device: torch.device, run: Callable[[], object], rounds: int, calls: int = 10) -> float:
    """Seconds that the device takes for a call, none of Python's: `calls` of them are captured and replayed.

    On a CPU there is no such difference.
    """
    if device.type != "cuda":
        return seconds_in_a_row(device, run, rounds)
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        run()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls):
            run()
    return seconds_in_a_row(device, graph.replay, rounds) / calls


def wait(device: torch.device) -> None:
    """Until the device has done all that was launched."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
