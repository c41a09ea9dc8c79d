"""What a program says of itself when it opens, so that the runtime can treat its requests as one."""

from __future__ import annotations

import msgspec

from radixrt.errors import InvalidRequest

MAX_SALT_BYTES = 256
MAX_PRIORITY = 2**31 - 1
MAX_STEPS = 10**6


class ProgramTerms(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Of one program, and so of all its requests. A plain call is a program of one request."""

    cache_salt: str | None = None
    """Who may share cached prefixes: only programs of the same salt do, and those that give none. So one tenant cannot
    learn of another's prompts from how fast an answer comes, or from `cached_tokens` (CVE-2025-46570)."""
    priority: int = 0
    """For the schedule policy `priority`: the highest goes first."""
    steps: int | None = None
    """How many generations the program is expected to make, for the schedule policy `program`. None: not known."""


NO_TERMS = ProgramTerms()


def check(terms: ProgramTerms) -> None:
    """Raise `InvalidRequest`, naming the field, for a value outside its range."""
    if terms.cache_salt is not None and len(terms.cache_salt.encode(errors="surrogatepass")) > MAX_SALT_BYTES:
        raise InvalidRequest(f"cache_salt has more than {MAX_SALT_BYTES} bytes", field="cache_salt")
    if abs(terms.priority) > MAX_PRIORITY:
        message = f"priority is {terms.priority}; it must be from -{MAX_PRIORITY} to {MAX_PRIORITY}"
        raise InvalidRequest(message, field="priority")
    if terms.steps is not None and not 1 <= terms.steps <= MAX_STEPS:
        raise InvalidRequest(f"steps is {terms.steps}; it must be from 1 to {MAX_STEPS}", field="steps")
