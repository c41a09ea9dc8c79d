"""`radixrt serve`: a model behind HTTP."""

from __future__ import annotations

import signal
import socket
from typing import Annotated

import typer

from radixrt.cli.options import (
    ActivationsOption,
    ContextLengthOption,
    DeviceOption,
    DtypeOption,
    KernelsOption,
    KvDtypeOption,
    ModelOption,
    PageSizeOption,
    WeightsDtypeOption,
)
from radixrt.config import DEFAULT_MODEL
from radixrt.server.settings import DEFAULT_DRAIN_SECONDS, DEFAULT_PORT, ServerSettings, check


def serve(
    model: ModelOption = DEFAULT_MODEL,
    host: Annotated[str, typer.Option(help="address to listen at; 0.0.0.0 for all of this machine")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0: any free one; the line that tells of readiness names it")] = (
        DEFAULT_PORT
    ),
    served_model_name: Annotated[
        str | None, typer.Option(help="the name that clients give as `model`; by default the model's own")
    ] = None,
    drain_seconds: Annotated[
        float, typer.Option(help="how long live requests may go on after SIGTERM or Ctrl-C")
    ] = DEFAULT_DRAIN_SECONDS,
    kernels: KernelsOption = "auto",
    dtype: DtypeOption = "auto",
    activations: ActivationsOption = "auto",
    kv_dtype: KvDtypeOption = "auto",
    weights_dtype: WeightsDtypeOption = "auto",
    device: DeviceOption = "cpu",
    page_size: PageSizeOption = 16,
    kv_memory: Annotated[int | None, typer.Option(help="bytes of the KV pool; by default a share of free memory")] = (
        None
    ),
    context_length: ContextLengthOption = None,
    max_running: Annotated[int, typer.Option(help="most requests in one step")] = 64,
    step_tokens: Annotated[int, typer.Option(help="most tokens in one step")] = 512,
    max_queue: Annotated[int, typer.Option(help="most requests that wait; the server answers 429 to more")] = 16_384,
    schedule_policy: Annotated[
        str, typer.Option(help="order of waiting requests: lpm, fcfs, dfs, priority or program")
    ] = "lpm",
    eviction_policy: Annotated[
        str, typer.Option(help="which cached prefix goes first: lru, lfu, fifo or program")
    ] = "lru",
    grammar_backend: Annotated[
        str, typer.Option(help="what compiles constraints: auto, llguidance or outlines-core")
    ] = "auto",
    prefix_cache: Annotated[bool, typer.Option(help="reuse what was computed for equal prefixes")] = True,
    threads: Annotated[int | None, typer.Option(help="compute threads; by default one a physical core")] = None,
    log_level: Annotated[str, typer.Option(help="of the worker: debug, info, warning or error")] = "warning",
) -> None:
    """Serve a model over HTTP: OpenAI's routes, /generate, /health, /metrics. Prints one line when it is ready.

    SIGTERM or Ctrl-C lets live requests end first; a second one does not.

    Examples:

      radixrt serve
      radixrt serve --model ~/models/Qwen3-0.6B --host 0.0.0.0 --port 8000 --served-model-name qwen
      curl http://127.0.0.1:30000/v1/completions -H 'Content-Type: application/json' -d '{"prompt": "The tide"}'
    """
    import asyncio

    from radixrt.client.worker_config import worker_config
    from radixrt.server.listener import listen

    worker = worker_config(
        model=model,
        dtype=dtype,
        device=device,
        kernels=kernels,
        activations=activations,
        kv_dtype=kv_dtype,
        weights_dtype=weights_dtype,
        page_size=page_size,
        kv_memory=kv_memory,
        context_length=context_length,
        max_running=max_running,
        step_tokens=step_tokens,
        max_queue=max_queue,
        schedule_policy=schedule_policy,
        eviction_policy=eviction_policy,
        grammar_backend=grammar_backend,
        prefix_cache=prefix_cache,
        threads=threads,
        log_level=log_level,
    )
    settings = ServerSettings(worker=worker, served_model_name=served_model_name, drain_seconds=drain_seconds)
    check(settings)
    asyncio.run(_run(settings, listen(host, port)))


async def _run(settings: ServerSettings, listener: socket.socket) -> None:
    import asyncio

    from radixrt.server.service import Service

    service = Service(settings, listener, announce=_announce)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, service.stop)
    await service.run()


def _announce(url: str) -> None:
    print(f"radixrt is ready at {url}", flush=True)
