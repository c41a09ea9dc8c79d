"""Which files a model's name stands for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from radixrt.config import DEFAULT_MODEL, cache_folder
from radixrt.errors import ModelNotFound
from radixrt.text.download import Progress, fetch_default_model, fetch_from_hub, kept_default_model

_HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_ACCEPTED = (
    f"A model is a folder in the Hugging Face layout (config.json, tokenizer.json, *.safetensors), a .gguf file, "
    f"{DEFAULT_MODEL}, or a name owner/name on the Hugging Face hub."
)


@dataclass(frozen=True)
class ModelFiles:
    """A model on disk: a folder in the Hugging Face layout or a GGUF file, exactly one of them."""

    name: str
    folder: Path | None = None
    gguf: Path | None = None

    def __post_init__(self) -> None:
        if (self.folder is None) == (self.gguf is None):
            raise ValueError("a model is either a folder or a GGUF file")


def find_model(name: str, progress: Progress | None = None) -> ModelFiles:
    """The files of the model `name`, fetched first where they are not on this machine yet.

    `name` is a folder with config.json and safetensors, a `.gguf` file, `smollm2-135m`, or a hub name `owner/name`.
    `progress` hears of a download as `(stage, bytes done, bytes in all)`. Raises `ModelNotFound`, saying what is
    accepted, or `DownloadFailed`, saying what to do without a network.
    """
    files = find_model_here(name)
    if files is not None:
        return files
    if name == DEFAULT_MODEL:
        return ModelFiles(name, gguf=fetch_default_model(models_folder(), progress))
    return ModelFiles(name, folder=_checked_folder(fetch_from_hub(name)))


def find_model_here(name: str) -> ModelFiles | None:
    """The files of the model `name` if they need not be fetched; None for one that `find_model` would fetch.

    A hub name is always the hub's to look up, which keeps a cache of its own. Raises `ModelNotFound`.
    """
    if name == DEFAULT_MODEL:
        kept = kept_default_model(models_folder())
        return None if kept is None else ModelFiles(name, gguf=kept)
    path = Path(name).expanduser()
    if path.is_dir():
        return ModelFiles(path.resolve().name, folder=_checked_folder(path))
    if path.suffix == ".gguf":
        if not path.is_file():
            raise ModelNotFound(f"there is no file {path}", field="model")
        return ModelFiles(path.stem, gguf=path)
    if is_hub_name(name):
        return None
    raise ModelNotFound(f"no model {name!r}. {_ACCEPTED}", field="model")


def is_hub_name(name: str) -> bool:
    """Whether `name` has the form owner/name."""
    return _HUB_NAME.fullmatch(name) is not None


def models_folder() -> Path:
    """Where models that radixrt itself fetches are kept."""
    return cache_folder() / "models"


def _checked_folder(folder: Path) -> Path:
    if not (folder / "config.json").is_file():
        others = sorted(folder.glob("*.gguf"))
        hint = f"To use its GGUF file give the path {others[0]}." if others else _ACCEPTED
        raise ModelNotFound(f"the folder {folder} has no config.json. {hint}", field="model")
    if not any(folder.glob("*.safetensors")):
        raise ModelNotFound(f"the folder {folder} has no .safetensors file. {_ACCEPTED}", field="model")
    return folder
