"""Running code as on a machine that has the base install alone."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

from tests.import_rules import ROOT

_WITHOUT_EXTRAS = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in EXTRAS:
            raise ModuleNotFoundError(f"{name} is not in the base install", name=name)

sys.meta_path.insert(0, Absent())
"""
_MODULES = {"fastapi", "gguf", "huggingface_hub", "jinja2", "llguidance", "numpy", "outlines_core", "prometheus_client"}
_MODULES |= {"safetensors", "tokenizers", "torch", "uvicorn", "zmq", "starlette", "transformers"}
_MODULES |= {"jsonschema", "openai", "pydantic"}
"""Not extras, but nothing that the base install brings either."""


def printed_on_the_base_install(code: str, folder: Path) -> str:
    """What a process that cannot import any extra prints; it runs in `folder`, and must end well."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
    names = {requirement.partition(">")[0].replace("-", "_") for requirement in extras}
    assert {name.replace("pyzmq", "zmq") for name in names} <= _MODULES, "an extra is not kept out"
    code = f"EXTRAS = {_MODULES!r}\n{_WITHOUT_EXTRAS}{code}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
