"""What a model is made of, no weight being read and nothing heavy being loaded."""

from __future__ import annotations

import tempfile
from pathlib import Path

from radixrt.errors import ModelNotFound
from radixrt.model import hf_config
from radixrt.model.config import ModelConfig
from radixrt.model.presets import PRESETS
from radixrt.text.download import fetch_config_from_hub, kept_hub_model
from radixrt.text.model_files import ModelFiles, is_hub_name


def config_of(files: ModelFiles) -> ModelConfig:
    """What the model's files say of it; raises `UnsupportedModel`."""
    if files.gguf is not None:
        return _gguf_config(files.gguf)
    assert files.folder is not None
    return hf_config.read_config(files.folder / "config.json")


def config_named(name: str) -> ModelConfig:
    """The configuration that `name` leads to; it needs no weights, and but for a GGUF file the base install only.

    `name` is one of `PRESETS`, a config.json, a folder that has one, a `.gguf` file, or a hub name, of which no more
    than the config.json is fetched. Raises `ModelNotFound`, `UnsupportedModel` or `DownloadFailed`.
    """
    preset = PRESETS.get(name.lower())
    if preset is not None:
        return hf_config.parse_config(preset)
    path = Path(name).expanduser()
    if path.is_dir():
        path = path / "config.json"
    if path.suffix in (".json", ".gguf"):
        if not path.is_file():
            raise ModelNotFound(f"there is no file {path}", field="model")
        return _gguf_config(path) if path.suffix == ".gguf" else hf_config.read_config(path)
    if is_hub_name(name):
        return _hub_config(name)
    raise ModelNotFound(
        f"no model {name!r}. A model to plan for is a config.json, a folder with one, a .gguf file, a name owner/name "
        f"on the Hugging Face hub, or one of {', '.join(PRESETS)}.",
        field="model",
    )


def _gguf_config(path: Path) -> ModelConfig:
    # Imported here since they need numpy and gguf, which the base install does without.
    from radixrt.model import gguf_config
    from radixrt.text.gguf import GgufFile

    return gguf_config.read_config(GgufFile(path))


def _hub_config(name: str) -> ModelConfig:
    kept = kept_hub_model(name)
    if kept is not None:
        return hf_config.read_config(kept / "config.json")
    with tempfile.TemporaryDirectory() as folder:
        return hf_config.read_config(fetch_config_from_hub(name, Path(folder)))
