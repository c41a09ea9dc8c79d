"""`radixrt plan`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from radixrt.cli import app
from radixrt.cli.amounts import parse_bytes
from radixrt.errors import DownloadFailed, InvalidRequest, ModelNotFound, RadixError, UnsupportedModel
from radixrt.text.model_files import ModelFiles
from tests.cli.test_help import without_the_extra


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def cells(output: str, name: str) -> list[str]:
    """The values of the table's row that begins with `name`, one for each precision."""
    (line,) = [line for line in output.splitlines() if line.strip().startswith(name)]
    return line.split(name)[1].replace(" GB", "").split()


def test_the_table_says_what_an_h200_holds_of_llama_31_8b() -> None:
    done = plan("--model", "llama-3.1-8b", "--memory", "141GB", "--context", "8192")
    assert done.exit_code == 0
    assert cells(done.output, "KV bytes of a token") == ["131,072", "65,536", "65,536"]
    assert cells(done.output, "- weights") == ["16.1", "16.1", "9.1"]
    assert cells(done.output, "pages of 16 tokens") == ["52,021", "104,042", "110,693"]
    assert cells(done.output, "requests at once, 8,192 tokens each") == ["101", "203", "216"]
    assert cells(done.output, "requests at once, 4,096 tokens each") == ["202", "405", "431"]
    assert cells(done.output, "left empty of the slots they take") == ["0.18%"] * 3
    assert cells(done.output, "with one contiguous reservation each") == ["101", "203", "216"]
    assert cells(done.output, "left empty of the slots they would take") == ["50.00%"] * 3


def test_the_memory_for_a_number_of_requests_is_a_row_of_its_own() -> None:
    done = plan("--model", "llama-3.1-8b", "--memory", "24GiB", "--context", "8192", "--concurrency", "64")
    # 64 * 8,192 * 131,072 bytes, weights and workspace, at 90 %
    assert cells(done.output, "memory for 64 requests of 8,192 tokens")[0] == "96.1"


def test_the_same_as_json() -> None:
    done = plan("--model", "Llama-3.1-8B", "--memory", "141GB", "--context", "8192", "--json")
    report = json.loads(done.output)
    assert report["demand"]["memory"] == 141_000_000_000
    assert [found["precision"] for found in report["capacities"]] == ["fp16, bf16", "fp8 KV", "fp8"]
    assert report["capacities"][0]["token_bytes"] == 131_072


def test_what_does_not_fit_is_said_and_is_the_exit_status() -> None:
    done = plan("--model", "llama-3.1-70b", "--memory", "24GB")
    assert done.exit_code == 1
    assert "not one request of 131,072 tokens fits" in done.output


def test_a_config_json_suffices_alone_or_in_its_folder(tiny_llama: Path, tmp_path: Path) -> None:
    shutil.copy(tiny_llama / "config.json", tmp_path)
    outputs = {plan("--model", str(path), "--memory", "1GB").output for path in (tmp_path, tmp_path / "config.json")}
    for output in outputs:
        # 2 * 2 layers * 2 KV heads * 16 elements * 2 bytes
        assert cells(output, "KV bytes of a token") == ["256", "128", "128"]
    assert len(outputs) == 2


def test_a_gguf_file_is_planned_for_by_its_header(smollm2_files: ModelFiles) -> None:
    named = plan("--model", "smollm2-135m", "--memory", "4GB")
    read = plan("--model", str(smollm2_files.gguf), "--memory", "4GB")
    assert read.output.splitlines()[1:] == named.output.splitlines()[1:]


def test_the_base_install_plans_for_a_config_json(tiny_llama: Path) -> None:
    done = without_the_extra("plan", "--model", str(tiny_llama), "--memory", "1GB")
    assert (done.returncode, done.stderr) == (0, "")
    assert cells(done.stdout, "KV bytes of a token") == ["256", "128", "128"]


def test_planning_loads_no_torch() -> None:
    code = (
        "import sys; from radixrt.cli import app\n"
        "app(['plan', '--model', 'qwen3-8b', '--memory', '80GiB'], standalone_mode=False)\n"
        "print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "False", done.stderr


@pytest.mark.parametrize(
    ("arguments", "kind", "field"),
    [
        (("--model", "llama-3.1-8b", "--memory", "lots"), InvalidRequest, "memory"),
        (("--model", "llama-3.1-8b", "--memory", "24G"), InvalidRequest, "memory"),
        (("--model", "llama-3.1-8b", "--memory", "0GB"), InvalidRequest, "memory"),
        (("--model", "llama-3.1-8b", "--memory", "24GB", "--context", "200000"), InvalidRequest, "context"),
        (("--model", "llama-3.1-8b", "--memory", "24GB", "--context", "0"), InvalidRequest, "context"),
        (("--model", "llama-3.1-8b", "--memory", "24GB", "--page-size", "24"), InvalidRequest, "page_size"),
        (("--model", "llama-9", "--memory", "24GB"), ModelNotFound, "model"),
        (("--model", "no/such/config.json", "--memory", "24GB"), ModelNotFound, "model"),
    ],
)
def test_what_is_wrong_is_named(arguments: tuple[str, ...], kind: type[RadixError], field: str) -> None:
    done = plan(*arguments)
    assert isinstance(done.exception, kind)
    assert done.exception.field == field


def test_an_unknown_model_is_told_what_there_is() -> None:
    assert "llama-3.1-8b" in str(plan("--model", "llama-9", "--memory", "24GB").exception)


def test_a_hub_name_that_cannot_be_fetched_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # tests/conftest.py keeps the hub's client off the network.
    monkeypatch.setattr("radixrt.model.describe.kept_hub_model", lambda name: None)
    done = plan("--model", "nobody/nothing", "--memory", "24GB")
    assert isinstance(done.exception, DownloadFailed)
    assert "nobody/nothing" in str(done.exception)


def test_of_a_hub_model_that_is_kept_the_config_is_read(monkeypatch: pytest.MonkeyPatch, tiny_llama: Path) -> None:
    monkeypatch.setattr("radixrt.model.describe.kept_hub_model", lambda name: tiny_llama)
    done = plan("--model", "somebody/tiny", "--memory", "1GB")
    assert cells(done.output, "KV bytes of a token") == ["256", "128", "128"]


def test_an_architecture_that_radixrt_does_not_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["MambaForCausalLM"]}')
    assert isinstance(plan("--model", str(tmp_path), "--memory", "24GB").exception, UnsupportedModel)


@pytest.mark.parametrize(
    ("text", "count"),
    [("7", 7), ("512 B", 512), ("24gb", 24 * 10**9), ("80GiB", 80 * 2**30), ("0.5 TB", 5 * 10**11), ("64KiB", 65536)],
)
def test_amounts_are_decimal_or_binary_as_they_are_written(text: str, count: int) -> None:
    assert parse_bytes(text, "memory") == count


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1e9", "1,000", "10 GBs", "٣GB"])
def test_an_amount_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_bytes(text, "memory")
    assert caught.value.field == "memory"
