"""The worker's own parts, from request trees to the prefix tree, around the simulated model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.programs.model import Language, SimulatedModel
from radixrt.cache.prefix_cache import PrefixCache
from radixrt.protocol.messages import PROTOCOL_VERSION, Welcome
from radixrt.protocol.plan import StepPlan
from radixrt.scheduler.scheduler import Limits, Scheduler
from radixrt.worker.engine import Engine
from radixrt.worker.programs import Programs

PAGE_SIZE = 16
STEP_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Policies:
    """How requests are ordered and pages evicted."""

    schedule: str = "lpm"
    eviction: str = "lru"


class SimulatedWorker:
    """A worker in this process."""

    def __init__(
        self,
        language: Language,
        pages: int,
        policies: Policies = Policies(),
        *,
        page_size: int = PAGE_SIZE,
        reuse: bool = True,
    ) -> None:
        """`reuse`: False if nothing is to be looked up in the prefix tree."""
        self.model = SimulatedModel(language, pages, page_size)
        cache = PrefixCache(pages, page_size, policies.eviction)
        limits = Limits(max_running=64, step_tokens=STEP_TOKENS, context_length=pages * page_size)
        scheduler = Scheduler(cache, limits, policies.schedule, reuse=reuse)
        tokenizer = language.tokenizer
        ends = language.frontend.end_ids
        engine = Engine(scheduler, self.model, tokenizer, ends, language.compiler)
        welcome = Welcome(
            version=PROTOCOL_VERSION,
            model="simulated",
            device="cpu",
            kernels="none",
            dtype="none",
            page_size=page_size,
            pool_pages=pages,
            kv_bytes=0,
            context_length=limits.context_length,
            vocabulary_size=tokenizer.vocabulary_size,
        )
        self.programs = Programs(engine, welcome)

    @property
    def rows_written(self) -> int:
        """Tokens whose keys and values were computed."""
        return self.model.rows_written

    def watch(self, on_plan: Callable[[StepPlan], None]) -> None:
        """Show all plans before they are computed."""
        self.model.on_plan = on_plan
