"""Programs written in SGLang's frontend syntax run after their import is changed, and pass their own checks."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import radixrt as rx
from radixrt.protocol.messages import TreeNode
from tests.lang.scripted import Scripted

PROGRAMS = sorted((Path(__file__).parents[1] / "cases" / "programs").glob("*.py"))
ON_A_MODEL_ONLY = {
    # Their checks hold for what a model draws under constraints and stops, of which a script knows too little.
    "d01_sampling_knobs",
    "d02_typed_fields",
    "d04_regex_forms",
    "d05_json_museum",
    "d13_logprob_and_n",
    # It empties the cache of its backend, and a script has none.
    "d15_calls_and_backend",
}


def load(path: Path) -> ModuleType:
    first, rest = path.read_text().split("\n", 1)
    assert first == "import sglang as sgl"
    module = ModuleType(path.stem)
    exec(compile("import radixrt as sgl\n" + rest, str(path), "exec"), module.__dict__)
    return module


def obey_stops(prompt: str, node: TreeNode) -> str:
    assert node.sampling is not None
    text = f"{prompt[-2:]}{node.id}. Question\n?"[: node.sampling.max_tokens]
    return text[: min((at for stop in node.sampling.stop if (at := text.find(stop)) >= 0), default=len(text))]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_a_program_passes_its_check_on_a_model(path: Path, runtime: rx.Runtime) -> None:
    program = load(path)
    program.check(program.main(runtime))


@pytest.mark.parametrize("path", [p for p in PROGRAMS if p.stem not in ON_A_MODEL_ONLY], ids=lambda path: path.stem)
@pytest.mark.parametrize("explicit", [False, True])
def test_a_program_passes_its_check(path: Path, explicit: bool, backend: Scripted) -> None:
    backend.script = obey_stops
    other = Scripted(obey_stops)
    program = load(path)
    program.check(program.main(other if explicit else None))
    assert (other if explicit else backend).opened > 0
    assert (backend if explicit else other).opened == 0
