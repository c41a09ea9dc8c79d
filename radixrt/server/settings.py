"""What a server is started with."""

from __future__ import annotations

import math

import msgspec

from radixrt.config import WorkerConfig
from radixrt.config import check as check_worker
from radixrt.errors import InvalidRequest

DEFAULT_PORT = 30000
DEFAULT_DRAIN_SECONDS = 10.0
MAX_BODY_BYTES = 10 * 2**20
"""A larger request body is refused with 413."""


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """A server's options. Validated by `check`, never changed afterwards."""

    worker: WorkerConfig
    served_model_name: str | None = None
    """The name that clients give as `model`. None: the model's own name."""
    drain_seconds: float = DEFAULT_DRAIN_SECONDS
    """How long a server that was told to stop waits for live requests; then they fail."""


def check(settings: ServerSettings) -> None:
    """Raise `InvalidRequest`, naming the option, for a value outside its range."""
    check_worker(settings.worker)
    if not math.isfinite(settings.drain_seconds) or settings.drain_seconds < 0:
        raise InvalidRequest(
            f"drain_seconds is {settings.drain_seconds}; it must be a number of seconds, 0 or more",
            field="drain_seconds",
        )
    if settings.served_model_name == "":
        raise InvalidRequest("served_model_name is empty", field="served_model_name")
