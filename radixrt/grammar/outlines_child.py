"""The process in which outlines-core builds an index, with bounded memory and time: `python -m` this module.

The library has no limits of its own. The request comes on standard input, the index goes to standard output, both as
bytes; whoever started the process kills it when it takes too long.
"""

from __future__ import annotations

import sys

import msgspec


class BuildIndex(msgspec.Struct, frozen=True):
    """What to build, and the most memory that may be taken for it."""

    pattern: str
    tokens: list[tuple[int, bytes]]
    """Ids and bytes; several ids may stand for the same bytes."""
    end_id: int
    memory: int
    """Bytes of address space; where the system cannot limit it, time alone is bounded."""


def main() -> int:
    request = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=BuildIndex)
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (request.memory, request.memory))
    except (ImportError, OSError, ValueError):
        pass
    from outlines_core import Index, Vocabulary

    ids: dict[bytes, list[int]] = {}
    for token, data in request.tokens:
        ids.setdefault(data, []).append(token)
    try:
        index = Index(request.pattern, Vocabulary(request.end_id, ids))
    except ValueError as error:
        sys.stderr.write(str(error))
        return 1
    _, (data,) = index.__reduce__()
    sys.stdout.buffer.write(bytes(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
