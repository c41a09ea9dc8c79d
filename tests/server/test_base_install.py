"""A machine with the base install alone drives a server elsewhere."""

from __future__ import annotations

from pathlib import Path

from tests.server.conftest import RunningServer
from tests.support.base_install import printed_on_the_base_install

PROGRAM = """
import asyncio
import radixrt as rx

@rx.function
def program(s):
    s += rx.user("Which word?") + rx.assistant(rx.gen("word", max_tokens=4))
    branches = s.fork(2)
    for number, branch in enumerate(branches):
        branch += f"{number}" + rx.gen("more", regex="[ab]{2}", logprobs=1)
    branches.join()
    s += "So" + rx.select("end", ["yes", "no"])

with rx.RuntimeEndpoint(URL) as backend:
    state = program.run(backend=backend)
    assert state["end"] in ("yes", "no")
    assert [len(text) for text in state["more"]] == [2, 2]
    assert state.text().startswith("<|im_start|>user")
    assert state.get_meta_info("end")["choices"] == ["yes", "no"]
    reply = backend.generate([65, 66], {"max_tokens": 3, "ignore_eos": True})
    assert len(reply.ids) == 3 == len(list(reply.ids))
    assert backend.score("The tide", ["comes"]).best.text == "comes"
    assert asyncio.run(backend.agenerate("The tide", {"max_tokens": 1})).usage.completion_tokens == 1
    assert rx.get_server_info(backend)["state"] == "ready"
    rx.flush_cache(backend)
print("driven")
"""


def test_the_base_install_drives_a_remote_server(server: RunningServer, tmp_path: Path) -> None:
    assert printed_on_the_base_install(f"URL = {server.url!r}\n{PROGRAM}", tmp_path) == "driven\n"
