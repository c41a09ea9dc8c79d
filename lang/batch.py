"""Many runs at once, on a pool of threads or in an event loop, their states in order."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Literal

from radixrt.errors import InvalidRequest
from radixrt.lang.prefixes import SharedPrefix
from radixrt.lang.runs import Run
from radixrt.lang.state import ProgramState

AUTO_THREADS = 64
"""As many programs as a worker generates for at once, by default."""


def run_all(runs: Sequence[Run], num_threads: int | Literal["auto"], progress_bar: bool) -> list[ProgramState]:
    """The states of all runs. The first error, in the runs' order, ends the others and is raised."""
    return list(run_in_order(runs, num_threads, progress_bar))


async def run_all_async(
    runs: Sequence[Run], num_threads: int | Literal["auto"], progress_bar: bool
) -> list[ProgramState]:
    """`run_all` in the running event loop, for runs whose bodies are coroutines; "auto" is all at once."""
    at_once = min(_checked(num_threads, len(runs)), len(runs))
    _share_prefix(runs, at_once)
    turn = asyncio.Semaphore(at_once)
    with _progress(len(runs), progress_bar) as advance:

        async def execute(run: Run) -> ProgramState:
            async with turn:
                state = await run.execute_async()
            advance()
            return state

        tasks = [asyncio.create_task(execute(run)) for run in runs]
        try:
            return [await task for task in tasks]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


def run_in_order(runs: Sequence[Run], num_threads: int | Literal["auto"], progress_bar: bool) -> Iterator[ProgramState]:
    """The states, each as soon as it and those before it are ready. Nothing runs before the first is asked for.

    Raises `InvalidRequest` for a wrong number of threads.
    """
    threads = _checked(num_threads, AUTO_THREADS)
    if not runs:
        return iter(())
    threads = min(threads, len(runs))
    _share_prefix(runs, threads)
    return _states(runs, threads, progress_bar)


def _share_prefix(runs: Sequence[Run], at_once: int) -> None:
    """Have what the first runs begin with computed once, if that saves anything."""
    if min(len(runs), at_once) > 1 and runs[0].backend.capabilities.caches_prefixes:
        shared = SharedPrefix(runs[0].backend, at_once)
        for run in runs[:at_once]:
            run.share(shared)


def _checked(num_threads: int | Literal["auto"], auto: int) -> int:
    if num_threads == "auto":
        return auto
    if not isinstance(num_threads, int) or num_threads < 1:
        raise InvalidRequest(f'num_threads is {num_threads!r}; it must be "auto" or at least 1', field="num_threads")
    return num_threads


def _states(runs: Sequence[Run], threads: int, progress_bar: bool) -> Iterator[ProgramState]:
    with (
        _progress(len(runs), progress_bar) as advance,
        ThreadPoolExecutor(threads, thread_name_prefix="radixrt batch") as pool,
    ):
        futures: deque[Future[ProgramState]] = deque()
        finished = False
        try:
            for run in runs:
                future = pool.submit(contextvars.copy_context().run, run.execute)
                future.add_done_callback(lambda _: advance())
                futures.append(future)
            while futures:
                yield futures.popleft().result()
            finished = True
        finally:
            if not finished:  # an error, an interrupt, or nobody wants the rest
                for future in futures:
                    future.cancel()
                for run in runs:
                    run.close()


@contextmanager
def _progress(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """What to call after each run."""
    if not shown:
        yield lambda: None
        return
    from rich.progress import Progress  # slow to import, and seldom wanted

    with Progress() as progress:
        task = progress.add_task("runs", total=total)
        yield lambda: progress.advance(task)
