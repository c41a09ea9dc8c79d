"""What every route is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic, time

from radixrt.server.errors import HttpProblem
from radixrt.server.metrics import Metrics
from radixrt.server.settings import ServerSettings
from radixrt.server.supervisor import Supervisor
from radixrt.text.frontend import Frontend


@dataclass(frozen=True)
class Parts:
    """One server's parts. Handed down, so that two servers in one process share nothing."""

    settings: ServerSettings
    supervisor: Supervisor
    metrics: Metrics
    started: float = field(default_factory=monotonic)
    created: int = field(default_factory=lambda: int(time()))
    """When the server started, in seconds since 1970."""

    @property
    def frontend(self) -> Frontend:
        """Raises `WorkerUnavailable` unless the worker can be used."""
        self.supervisor.check_ready()
        return self.supervisor.frontend

    @property
    def model_name(self) -> str:
        """What the model is called here; raises `WorkerUnavailable` unless the worker can be used."""
        self.supervisor.check_ready()
        return self.settings.served_model_name or self.supervisor.info.model

    def check_model(self, name: str | None) -> str:
        """The model's name; raises `HttpProblem` (404) for another one."""
        known = self.model_name
        if name is not None and name != known:
            raise HttpProblem(
                404, f"there is no model {name!r} here; there is {known!r}", code="model_not_found", field="model"
            )
        return known
