"""Options that several commands share: which model, and how it is run."""

from __future__ import annotations

from typing import Annotated

import typer

ModelOption = Annotated[
    str, typer.Option("--model", metavar="MODEL", help="a folder, a .gguf file, a hub name or smollm2-135m")
]
KernelsOption = Annotated[
    str,
    typer.Option(
        "--kernels", metavar="NAME", help="auto, cpu, a level of it as in cpu:avx2, reference, flashinfer or triton"
    ),
]
DtypeOption = Annotated[
    str, typer.Option("--dtype", metavar="NAME", help="of activations and KV: auto, float32, bfloat16 or float16")
]
ActivationsOption = Annotated[
    str,
    typer.Option(
        "--activations",
        metavar="NAME",
        help="auto, or int8: rounded for products with 4- and 8-bit weights, on cpu kernels; faster and less exact",
    ),
]
KvDtypeOption = Annotated[
    str,
    typer.Option("--kv-dtype", metavar="NAME", help="auto, or fp8: keys and values in 8 bits, on GPUs that have it"),
]
WeightsDtypeOption = Annotated[
    str,
    typer.Option(
        "--weights-dtype", metavar="NAME", help="auto, or fp8: layers' matrices in 8 bits, on GPUs that have it"
    ),
]
DeviceOption = Annotated[str, typer.Option("--device", metavar="NAME", help="where the model runs: cpu, cuda, cuda:1")]
PageSizeOption = Annotated[int, typer.Option("--page-size", metavar="TOKENS", help="tokens a page; a power of two")]
ContextLengthOption = Annotated[
    int | None,
    typer.Option("--context-length", metavar="TOKENS", help="longest sequence; by default the model's own limit"),
]
