"""What a command needs beyond the base install, and how to say that it is missing."""

from __future__ import annotations

SERVER_MODULES = frozenset(
    {
        "fastapi",
        "gguf",
        "huggingface_hub",
        "jinja2",
        "llguidance",
        "numpy",
        "outlines_core",
        "prometheus_client",
        "safetensors",
        "tokenizers",
        "torch",
        "uvicorn",
        "zmq",
    }
)
"""The modules that the `server` extra brings."""


def missing_extra(error: ModuleNotFoundError) -> str | None:
    """What to tell somebody whose command failed with `error`; None if the extra would not bring that module."""
    module = (error.name or "").partition(".")[0]
    if module not in SERVER_MODULES:
        return None
    return f"this needs the runtime, which is not installed (there is no {module}): pip install 'radixrt[server]'"
