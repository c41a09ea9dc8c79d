"""`radixrt chat`: a conversation in the terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Annotated

import typer

from radixrt.cli.options import (
    ActivationsOption,
    ContextLengthOption,
    DeviceOption,
    DtypeOption,
    KernelsOption,
    KvDtypeOption,
    ModelOption,
    WeightsDtypeOption,
)
from radixrt.config import DEFAULT_MODEL
from radixrt.errors import RadixError, WorkerUnavailable

if TYPE_CHECKING:
    from radixrt.client.runtime import Runtime
    from radixrt.protocol.sampling import SamplingParams

_HELP = """\
/reset         forget the conversation
/system TEXT   begin a new one with TEXT as the system prompt; without TEXT, show the present one
/stats         show, or stop showing, what each answer cost
/exit          end (as Ctrl-D does); Ctrl-C stops an answer"""


def chat(
    model: ModelOption = DEFAULT_MODEL,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="the system prompt")] = None,
    temperature: Annotated[float, typer.Option(metavar="NUMBER", help="0 is greedy")] = 0.7,
    top_p: Annotated[float, typer.Option(metavar="NUMBER", help="draw from the likeliest tokens of this share")] = 0.95,
    max_tokens: Annotated[int, typer.Option(metavar="TOKENS", help="of one answer")] = 512,
    seed: Annotated[int | None, typer.Option(metavar="NUMBER", help="the same answers every time")] = None,
    stats: Annotated[bool, typer.Option("--stats", help="show what each answer cost: tokens computed, reused")] = False,
    context_length: ContextLengthOption = None,
    kernels: KernelsOption = "auto",
    dtype: DtypeOption = "auto",
    activations: ActivationsOption = "auto",
    kv_dtype: KvDtypeOption = "auto",
    weights_dtype: WeightsDtypeOption = "auto",
    device: DeviceOption = "cpu",
) -> None:
    """Talk with a model. Ctrl-C stops an answer, Ctrl-D or /exit ends; /help lists the commands.

    A turn computes only what was typed: all that was said before is in the prefix cache (--stats shows it).

    Where standard input is not a terminal, each of its lines is asked in turn.

    Examples:

      radixrt chat
      radixrt chat --model ~/models/Qwen3-0.6B --system "Answer in one sentence." --temperature 0 --stats
      printf 'What is a tide?\\nAnd why twice a day?\\n' | radixrt chat --seed 1
    """
    from radixrt.client.generation import checked_params
    from radixrt.client.runtime import Runtime

    sampling = checked_params({"temperature": temperature, "top_p": top_p, "max_tokens": max_tokens, "seed": seed})
    runtime = Runtime(
        model,
        kernels=kernels,
        dtype=dtype,  # type: ignore[arg-type]  # checked by the configuration
        activations=activations,  # type: ignore[arg-type]
        kv_dtype=kv_dtype,  # type: ignore[arg-type]
        weights_dtype=weights_dtype,  # type: ignore[arg-type]
        device=device,
        context_length=context_length,
        max_running=1,
    )
    with runtime:
        if not Chat(runtime, sampling, system, stats=stats).converse():
            raise typer.Exit(1)


class Chat:
    """The terminal's side of a conversation: reads lines, prints answers, obeys commands."""

    def __init__(self, runtime: Runtime, sampling: SamplingParams, system: str | None, *, stats: bool) -> None:
        self._runtime = runtime
        self._sampling = sampling
        self._system = system
        self._stats = stats
        self._interactive = sys.stdin.isatty()
        self._reset()

    def converse(self) -> bool:
        """Until the end of the input, or /exit. Whether every question was answered; in a terminal always true."""
        all_well = True
        if self._interactive:
            print(f"{self._runtime.info.model}, {self._runtime.info.context_length:,} tokens of context. /help helps.")
        for line in self._lines():
            if line in ("/exit", "/quit"):
                break
            if line.startswith("/"):
                all_well &= self._obey(line)
            elif line:
                all_well &= self._answer(line)
        self._dialogue.close()
        return all_well or self._interactive

    def _lines(self) -> Iterator[str]:
        """What is typed, without white space around it."""
        if not self._interactive:
            yield from (line.strip() for line in sys.stdin)
            return
        import readline  # noqa: F401  # gives `input` a history and an editor

        while True:
            try:
                yield input("> ").strip()
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                print("\n(Ctrl-D ends)")

    def _answer(self, question: str) -> bool:
        """Print the answer as it comes; False if there is none. Raises `WorkerUnavailable`."""
        # In this order, so that an interrupt while printing stops the answer before it is reported.
        try:
            with closing(self._dialogue.ask(question)) as pieces:
                for piece in pieces:
                    print(piece, end="", flush=True)
        except KeyboardInterrupt:
            print(" ... (stopped)")
            return True
        except WorkerUnavailable:
            raise
        except RadixError as error:
            _complain(f"{error} (/reset forgets the conversation)")
            return False
        print()
        if self._stats:
            self._print_stats()
        return True

    def _print_stats(self) -> None:
        end = self._dialogue.last
        if end is not None:
            used = end.usage
            print(
                f"[{used.prompt_tokens:,} prompt tokens, {used.cached_tokens:,} of them reused; "
                f"{used.completion_tokens:,} generated; first after {end.time_to_first_token:.2f} s, "
                f"all after {end.time:.2f} s]"
            )

    def _obey(self, line: str) -> bool:
        """Carry out a command; False if there is no such one."""
        command, _, rest = line.partition(" ")
        match command:
            case "/help":
                print(_HELP)
            case "/reset":
                self._dialogue.close()
                self._reset()
            case "/system" if not rest:
                print(self._system or "(none of our own; the chat template may write one)")
            case "/system":
                self._system = rest.strip()
                self._dialogue.close()
                self._reset()
            case "/stats":
                self._stats = not self._stats
            case _:
                _complain(f"there is no command {command}; /help lists them")
                return False
        return True

    def _reset(self) -> None:
        from radixrt.cli.dialogue import Dialogue

        self._dialogue = Dialogue(self._runtime, self._sampling, self._system)


def _complain(message: str) -> None:
    print(f"radixrt: {message}", file=sys.stderr)
