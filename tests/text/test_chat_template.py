"""Chat templates render as Hugging Face renders them, inside a sandbox."""

from __future__ import annotations

from datetime import datetime

import pytest

from radixrt.errors import InvalidRequest, UnsupportedModel
from radixrt.text.chat_template import ChatTemplate
from tests.text.chat_families import FAMILIES

MESSAGES = [{"role": "user", "content": " What is <b>&</b>?\n"}, {"role": "assistant", "content": "Markup."}]


def render(source: str, messages: list[dict[str, object]] | None = None, *, generation: bool = False) -> str:
    template = ChatTemplate(source, bos="<s>", eos="</s>")
    return template.render(MESSAGES if messages is None else messages, add_generation_prompt=generation)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("generation", [False, True])
def test_it_renders_what_transformers_renders(family: str, generation: bool) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    source = FAMILIES[family]
    expected, _ = render_jinja_template(
        [MESSAGES], chat_template=source, add_generation_prompt=generation, bos_token="<s>", eos_token="</s>"
    )
    assert "Markup." in expected[0]
    assert render(source, generation=generation) == expected[0]


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages | tojson }}",
        "{{ messages[0].content | tojson(indent=2) }}",
        "{% for m in messages %}{% if loop.index0 == 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
        "{% for m in messages %}\n    {% if true %}\n  {{ m.role }}\n    {% endif %}\n{% endfor %}\n",
        "{% generation %}{{ messages[1].content }}{% endgeneration %}!",
        "{{ tools is none }} {{ documents is none }} {{ unknown is defined }}",
    ],
)
def test_filters_and_tags_are_those_of_transformers(source: str) -> None:
    from transformers.utils.chat_template_utils import render_jinja_template

    expected, _ = render_jinja_template([MESSAGES], chat_template=source)
    assert expected[0]
    assert render(source) == expected[0]


def test_a_template_can_write_the_date() -> None:
    before = datetime.now()
    written = render("{{ strftime_now('%d %B %Y') }}")
    assert written in {before.strftime("%d %B %Y"), datetime.now().strftime("%d %B %Y")}


def test_a_templates_own_complaint_is_an_invalid_request_in_its_words() -> None:
    with pytest.raises(InvalidRequest, match="System role not supported") as raised:
        render(FAMILIES["gemma"], [{"role": "system", "content": "Be brief."}])
    assert raised.value.field == "messages"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0].content + 1 }}",
        "{{ messages[9].content.title }}",
        "{{ 1 / (messages | length - 2) }}",
        "{{ messages.append(1) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    ],
)
def test_whatever_fails_inside_a_template_is_an_invalid_request(source: str) -> None:
    with pytest.raises(InvalidRequest) as raised:
        render(source)
    assert raised.value.field == "messages"


def test_a_template_that_does_not_compile_is_refused_as_a_model() -> None:
    with pytest.raises(UnsupportedModel, match="does not compile"):
        ChatTemplate("{% for m in messages %}", bos="", eos="")
