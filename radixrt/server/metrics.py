"""What is counted and timed, for Prometheus. Every name begins with `radixrt_`."""

from __future__ import annotations

from prometheus_client import CONTENT_TYPE_LATEST as CONTENT_TYPE
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from radixrt.protocol.events import Finished
from radixrt.protocol.messages import Stats

__all__ = ["CONTENT_TYPE", "Metrics"]

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """One server's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "radixrt_requests", "HTTP requests, when their reply begins", ["route", "status"], registry=registry
        )
        self._prompt = Counter("radixrt_prompt_tokens", "Tokens of prompts", registry=registry)
        self._cached = Counter("radixrt_cached_tokens", "Tokens of prompts that the cache had", registry=registry)
        self._generated = Counter("radixrt_generated_tokens", "Tokens generated", registry=registry)
        self._failures = Counter("radixrt_generation_failures", "Generations that ended in an error", registry=registry)
        self._running = Gauge("radixrt_running_requests", "Requests in the worker's batch", registry=registry)
        self._waiting = Gauge("radixrt_waiting_requests", "Requests in the worker's queue", registry=registry)
        self._pages = Gauge("radixrt_pages", "Pages of the KV pool", ["state"], registry=registry)
        self._up = Gauge("radixrt_worker_up", "1 while the worker can be used", registry=registry)
        self._restarts = Gauge("radixrt_worker_restarts", "Times that the worker was started again", registry=registry)
        self._first_token = Histogram(
            "radixrt_time_to_first_token_seconds",
            "From a request's arrival to its first token",
            buckets=_SECONDS,
            registry=registry,
        )
        self._whole = Histogram(
            "radixrt_end_to_end_seconds",
            "From a request's arrival to the end of its last generation",
            buckets=_SECONDS,
            registry=registry,
        )

    def count_request(self, route: str, status: int) -> None:
        self._requests.labels(route, str(status)).inc()

    def count_usage(self, end: Finished) -> None:
        """Count a finished choice; its prompt only once for all choices."""
        usage = end.usage
        self._generated.inc(usage.completion_tokens)
        if end.choice == 0:
            self._prompt.inc(usage.prompt_tokens)
            self._cached.inc(usage.cached_tokens)

    def count_failure(self) -> None:
        self._failures.inc()

    def observe_first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def observe_whole(self, seconds: float) -> None:
        self._whole.observe(seconds)

    def show_worker(self, up: bool, restarts: int, stats: Stats | None) -> None:
        """Set the gauges; without `stats` those that only the worker knows keep their last value."""
        self._up.set(up)
        self._restarts.set(restarts)
        if stats is not None:
            self._running.set(stats.running)
            self._waiting.set(stats.waiting)
            for state in ("free", "owned", "tree"):
                self._pages.labels(state).set(getattr(stats, f"pages_{state}"))

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self._registry)
