"""What a program asks of its backend, held against what the backend can do."""

from __future__ import annotations

import msgspec

from radixrt.client.backend import EVERYTHING, RUNTIME, Backend
from radixrt.errors import NotSupported
from radixrt.protocol.constraint import field_of
from radixrt.protocol.sampling import SamplingParams

_DEFAULTS = msgspec.structs.asdict(SamplingParams())


def check_gen(backend: Backend, sampling: SamplingParams, turn: str | None) -> None:
    """Raise `NotSupported` unless the backend can generate so, in a turn of that role (None: in none)."""
    able = backend.capabilities
    if able is EVERYTHING or able is RUNTIME:
        return
    for name, default in _DEFAULTS.items():
        if name != "constraint" and name not in able.options and getattr(sampling, name) != default:
            raise _refusal(backend, f"the sampling parameter {name}", name)
    if sampling.constraint is not None and (kind := field_of(sampling.constraint)) not in able.constraints:
        raise _refusal(backend, f"a generation constrained by {kind}", kind)
    if able.only_in_turns and turn != "assistant":
        raise _refusal(backend, "a generation outside an assistant turn", "role")


def check_continues(backend: Backend) -> None:
    """Raise `NotSupported` unless the backend goes on with a turn that has text."""
    if not backend.capabilities.continues_turns:
        raise _refusal(
            backend,
            "a generation behind other text of its turn, unless @function(num_api_spec_tokens=...) lets it write both",
            "role",
        )


def check_text(backend: Backend, text: str, turn: str | None) -> None:
    """Raise `NotSupported` unless the backend takes this text, in a turn of that role (None: in none).

    White space between turns is let through: it says nothing, and where turns are marked it stands anyway.
    """
    if turn is None and backend.capabilities.only_in_turns and text.strip():
        raise _refusal(backend, "text outside of turns", "role")


def check_select(backend: Backend) -> None:
    """Raise `NotSupported` unless the backend can score options."""
    if not backend.capabilities.select:
        raise _refusal(backend, "select", "choices")


def check_caches(backend: Backend) -> None:
    """Raise `NotSupported` unless it does the backend any good to compute a prefix before it is asked for."""
    if not backend.capabilities.caches_prefixes:
        raise _refusal(backend, "compute prefixes ahead", "backend")


def check_raw(backend: Backend) -> None:
    """Raise `NotSupported` unless the backend takes rendered prompts."""
    if not backend.capabilities.raw:
        raise _refusal(backend, "a rendered prompt (raw)", "raw")


def check_role(backend: Backend, role: str) -> None:
    """Raise `NotSupported` unless the backend's turns may have this role."""
    roles = backend.capabilities.roles
    if roles is not None and role not in roles:
        raise _refusal(backend, f"a turn of the role {role!r}", "role")


def _refusal(backend: Backend, what: str, field: str) -> NotSupported:
    return NotSupported(f"the backend {backend.name} cannot do this: {what}", field=field)
