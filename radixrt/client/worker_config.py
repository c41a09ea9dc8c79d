"""Options as a worker's configuration, for all who start one."""

from __future__ import annotations

from typing import Any

import msgspec

from radixrt.client.generation import invalid
from radixrt.config import WorkerConfig, check


def worker_config(**options: Any) -> WorkerConfig:
    """The options as a configuration; raises `InvalidRequest`, naming the option, for a wrong type or range."""
    try:
        config = msgspec.convert(options, WorkerConfig)
    except msgspec.ValidationError as error:
        raise invalid(WorkerConfig, error) from error
    check(config)
    return config
