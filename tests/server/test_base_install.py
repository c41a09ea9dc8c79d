"""A machine with the base install alone drives a server elsewhere."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.import_rules import ROOT
from tests.server.conftest import RunningServer

WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{name} is not in the base install", name=name)

sys.meta_path.insert(0, Absent())
"""
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
MODULES = {"fastapi", "gguf", "huggingface_hub", "jinja2", "llguidance", "numpy", "outlines_core", "prometheus_client"}
MODULES |= {"safetensors", "tokenizers", "torch", "uvicorn", "zmq", "starlette", "transformers"}


def test_the_base_install_drives_a_remote_server(server: RunningServer, tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
    names = {requirement.partition(">")[0].replace("-", "_") for requirement in extras}
    assert {name.replace("pyzmq", "zmq") for name in names} <= MODULES, "an extra is not kept out"
    code = f"EXTRAS = {MODULES!r}\nURL = {server.url!r}\n{WITHOUT_EXTRAS}{PROGRAM}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "driven\n"), done.stderr
