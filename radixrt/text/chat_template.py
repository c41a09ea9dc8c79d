"""A model's chat template: Jinja in a sandbox, with the names and filters that Hugging Face gives templates."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from radixrt.errors import InvalidRequest, UnsupportedModel


class ChatTemplate:
    """The template `source`, which may write the tokens `bos` and `eos` by name.

    Raises `UnsupportedModel` if it does not compile. Only a model's own template belongs here: the sandbox keeps it
    from the machine, but not from looping for ever.

    >>> source = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}{% endfor %}"
    >>> template = ChatTemplate(source, bos="", eos="$")
    >>> template.render([{"role": "user", "content": "Hi"}], add_generation_prompt=False)
    '<user>Hi$'
    """

    def __init__(self, source: str, bos: str, eos: str) -> None:
        self.source = source
        self._names = {"bos_token": bos, "eos_token": eos, "tools": None, "documents": None}
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise UnsupportedModel(f"the model's chat template does not compile: {error}") from error

    def render(self, messages: Sequence[Mapping[str, object]], add_generation_prompt: bool) -> str:
        """The conversation as text, special tokens spelled out; with a generation prompt an assistant turn is open.

        Raises `InvalidRequest` for messages that the template refuses or cannot handle.
        """
        try:
            return self._template.render(messages=messages, add_generation_prompt=add_generation_prompt, **self._names)
        except Exception as error:
            # A template complains through `raise_exception`, and fails in any way that Python code can: on a message
            # without content, say, with a TypeError.
            detail = error.message if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
            roles = ", ".join(str(message.get("role")) for message in messages) or "none"
            raise InvalidRequest(
                f"the model's chat template refuses the messages: {detail} (their roles: {roles})", field="messages"
            ) from error


def _environment() -> jinja2.Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


class _GenerationTag(Extension):
    """`{% generation %}...{% endgeneration %}` marks what a model is trained on; in a prompt it is its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Jinja's own filter escapes HTML, which no model has seen."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
