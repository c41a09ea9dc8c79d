"""What `radixrt doctor` finds, on a machine as it is and on some that lack something."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from radixrt.cli import app
from radixrt.kernels import registry
from radixrt.kernels.registry import BackendEntry, choose
from tests.cli.test_help import without_the_extra


def findings(*arguments: str, exit_code: int = 0) -> dict[str, tuple[str, str]]:
    """Status and text of each topic; of several with one topic the last."""
    done = CliRunner().invoke(app, ["doctor", "--json", *arguments])
    assert done.exit_code == exit_code, done.output
    report = json.loads(done.stdout)
    assert report["problems"] == sum(finding["status"] == "problem" for finding in report["findings"])
    assert (report["problems"] > 0) == bool(exit_code)
    assert {finding["status"] for finding in report["findings"]} <= {"ok", "note", "problem"}
    return {finding["topic"]: (finding["status"], finding["text"]) for finding in report["findings"]}


def test_a_model_that_is_here_is_told_of_with_its_kernels_its_pool_and_its_turns(tiny_llama: Path) -> None:
    found = findings("--model", str(tiny_llama), "--dtype", "float32")
    assert found["kernels"][0] == "ok"
    assert re.fullmatch(re.escape(choose("auto", "float32").reason) + r"; \d+ threads? by default", found["kernels"][1])
    assert found["model"][0] == "ok"
    assert "llama, 2 layers" in found["model"][1]
    assert "context up to 2,048 tokens" in found["model"][1]
    assert "pages of 16" in found["kv pool"][1]
    assert found["chat template"][0] == "ok"
    assert found["end of turn"] == ("ok", "0 <|endoftext|>, 2 <|im_end|>")


def test_kernels_that_a_better_machine_would_have_are_noted(tiny_llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = BackendEntry(
        "broken", ("cpu",), ("float32",), lambda _: "no compiler was found", lambda _: pytest.fail("loaded")
    )
    monkeypatch.setattr(registry, "_BACKENDS", (broken, *registry._BACKENDS))
    status, text = findings("--model", str(tiny_llama))["kernels"]
    assert status == "note"
    assert "passed over: broken kernels cannot run here: no compiler was found" in text


def test_lines_say_the_same_as_json(tiny_llama: Path) -> None:
    done = CliRunner().invoke(app, ["doctor", "--model", str(tiny_llama)])
    assert done.exit_code == 0
    topics = [line.split()[1] for line in done.output.splitlines() if not line.startswith(" ")]
    told = findings("--model", str(tiny_llama))
    assert (
        topics
        == [topic.split()[0] for topic in told if topic != "grammars"][:7]
        + ["grammars"] * 2
        + [topic.split()[0] for topic in told if topic != "grammars"][7:]
    )


def test_a_template_that_is_not_prefix_stable_is_noted_with_the_reason(tiny_llama: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings["chat_template"] = (
        "{% for m in messages %}<{{ m.role }} of {{ messages | length }}>{{ m.content }}{% endfor %}"
    )
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    status, text = findings("--model", str(folder))["chat template"]
    assert status == "note"
    assert "a turn changes how earlier ones are written" in text


def test_a_model_that_was_not_fetched_yet_is_a_note_and_is_not_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    found = findings()
    assert found["model"][0] == "note"
    assert "93 MB" in found["model"][1]
    assert found["model cache"] == ("ok", f"{tmp_path}/radixrt/models: empty")
    assert list(tmp_path.iterdir()) == []


def test_a_hub_model_that_is_not_here_is_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert findings("--model", "owner/no-such-model-of-ours")["model"][0] == "note"


@pytest.mark.parametrize(
    ("arguments", "topic", "said"),
    [
        (["--model", "/nowhere/model.gguf"], "model", "there is no file"),
        (["--model", "no-such-model"], "model", "no model 'no-such-model'"),
        (["--kernels", "abacus"], "kernels", "unknown kernel backend 'abacus'"),
        (["--dtype", "float64"], "kernels", "unknown dtype 'float64'"),
        (["--kv-dtype", "fp8"], "kernels", "reference kernels have no fp8 here"),
        (["--weights-dtype", "fp4"], "kernels", "unknown weights_dtype 'fp4'; choose auto or fp8"),
    ],
)
def test_what_cannot_work_is_a_problem_and_the_exit_status_says_so(
    arguments: list[str], topic: str, said: str, tiny_llama: Path
) -> None:
    if "--model" not in arguments:
        arguments = [*arguments, "--model", str(tiny_llama)]
    status, text = findings(*arguments, exit_code=1)[topic]
    assert status == "problem"
    assert said in text


def test_a_model_of_an_unknown_architecture_is_a_problem(tiny_llama: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(tiny_llama, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["MambaForCausalLM"]}))
    assert "MambaForCausalLM" in findings("--model", str(folder), exit_code=1)["model"][1]


def test_a_temporary_folder_too_deep_for_sockets_is_a_problem(
    tiny_llama: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    status, text = findings("--model", str(tiny_llama), exit_code=1)["sockets"]
    assert status == "problem"
    assert "TMPDIR" in text


def test_the_base_install_is_no_problem_but_noted() -> None:
    done = without_the_extra("doctor", "--json")
    assert done.returncode == 0, done.stderr
    found = {finding["topic"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["runtime"]["status"] == "note"
    assert "pip install 'radixrt[server]'" in found["runtime"]["text"]
    assert found["processor"]["status"] == "ok"
