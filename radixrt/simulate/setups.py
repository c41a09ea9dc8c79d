"""What is compared: ways to reuse prefixes, page sizes and policies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from radixrt.cache.eviction import POLICIES
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.errors import InvalidRequest
from radixrt.scheduler.policy import SCHEDULE_POLICIES
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.simulate.hash_blocks import BLOCK, BlockCache

REUSES: dict[str, int] = {"none": 16, "blocks": BLOCK, "radix-1": 1, "radix-16": 16, "radix-64": 64}
"""Ways to reuse prefixes, and the page size of each."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What every setup has alike."""

    cache_tokens: int = 400_000
    """Tokens that the KV pool holds."""
    max_running: int = 64
    step_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class Setup:
    """One row of a comparison."""

    reuse: str = "radix-16"
    schedule: str = "lpm"
    eviction: str = "lru"

    def __post_init__(self) -> None:
        """Raises `InvalidRequest` for a way of reuse or a policy that there is not."""
        for field, value, known in (
            ("reuse", self.reuse, REUSES),
            ("schedule", self.schedule, SCHEDULE_POLICIES),
            ("eviction", self.eviction, POLICIES),
        ):
            if value not in known:
                raise InvalidRequest(f"{field} is {value!r}; it must be one of {', '.join(known)}", field=field)

    @property
    def name(self) -> str:
        return " ".join((self.reuse, self.schedule, self.eviction))

    @property
    def page_size(self) -> int:
        return REUSES[self.reuse]

    @property
    def by_blocks(self) -> bool:
        """Whether only whole blocks are reused."""
        return self.reuse == "blocks"

    def scheduler(self, machine: Machine) -> Scheduler:
        """An empty one; raises `InvalidRequest` for a pool without a page."""
        pages = machine.cache_tokens // self.page_size
        if pages < 1:
            raise InvalidRequest(
                f"cache_tokens is {machine.cache_tokens}; a page takes {self.page_size}", field="cache_tokens"
            )
        cache = (BlockCache if self.by_blocks else PrefixCache)(pages, self.page_size, self.eviction)
        limits = Limits(machine.max_running, machine.step_tokens, pages * self.page_size)
        return Scheduler(cache, limits, self.schedule, reuse=self.reuse != "none")


def comparison(reuses: Sequence[str], schedules: Sequence[str], evictions: Sequence[str]) -> list[Setup]:
    """Vary one thing at a time: the first of each list is kept while the others are gone through."""

    def all_of_them() -> Iterator[Setup]:
        for reuse in reuses:
            yield Setup(reuse, schedules[0], evictions[0])
        base = "radix-16" if "radix-16" in reuses else reuses[-1]
        for schedule in schedules:
            yield Setup(base, schedule, evictions[0])
        for eviction in evictions:
            yield Setup(base, schedules[0], eviction)

    return list(dict.fromkeys(all_of_them()))
