"""Writes a trace in our own format, which `simulate/reading.py` reads back to the same requests."""

from __future__ import annotations

from pathlib import Path

import msgspec

from radixrt.errors import InvalidRequest
from radixrt.simulate.trace import Trace


def write_trace(path: Path, trace: Trace) -> None:
    """One JSON object a line; raises `InvalidRequest` where the file cannot be written.

    Ids have to be known: outputs and prompts of a generated trace, or of one in our own format.
    """
    parents = {request.parent for request in trace if request.parent is not None}
    try:
        with path.open("wb") as file:
            for place, request in enumerate(trace):
                line: dict[str, object] = {
                    "timestamp": request.arrival * 1000,
                    "tokens": request.prompt.ids().tolist(),
                    "output": request.output.tolist(),
                }
                if place in parents:
                    line["id"] = place
                if request.parent is not None:
                    line |= {"parent": request.parent, "pause": request.pause * 1000}
                if request.program is not None:
                    line["program"] = request.program
                if request.tenant is not None:
                    line["tenant"] = request.tenant
                if request.priority:
                    line["priority"] = request.priority
                file.write(msgspec.json.encode(line) + b"\n")
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror or error}", field="save_trace") from None
