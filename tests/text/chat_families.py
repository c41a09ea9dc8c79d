"""Chat templates that behave like those of the well-known model families, and a tokenizer for all of them."""

from __future__ import annotations

import json
from pathlib import Path

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_WITH_DEFAULT_SYSTEM = (
    "{% for message in messages %}{% if loop.first and message.role != 'system' %}"
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
LLAMA_3 = """\
{% for message in messages %}
    {% if loop.first %}{{ bos_token }}{% endif %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' -}}
{% endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""
LLAMA_2 = """\
{%- if messages[0].role == 'system' -%}
    {%- set system, turns = messages[0].content, messages[1:] -%}
{%- else -%}
    {%- set system, turns = none, messages -%}
{%- endif -%}
{%- for message in turns -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {%- set shown = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message.content
                if loop.first and system is not none else message.content -%}
        {{- bos_token + '[INST] ' + shown.strip() + ' [/INST]' -}}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' + message.content.strip() + ' ' + eos_token -}}
    {%- endif -%}
{%- endfor -%}"""
MISTRAL = """\
{{- bos_token -}}
{%- for message in messages -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') -}}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {{- '[INST] ' + message.content + ' [/INST]' -}}
    {%- elif message.role == 'assistant' -%}
        {{- message.content + eos_token -}}
    {%- else -%}
        {{- raise_exception('Only user and assistant roles are supported!') -}}
    {%- endif -%}
{%- endfor -%}"""
GEMMA = """\
{{- bos_token -}}
{%- if messages[0].role == 'system' -%}{{- raise_exception('System role not supported') -}}{%- endif -%}
{%- for message in messages -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('Conversation roles must alternate') -}}
    {%- endif -%}
    {%- set role = 'model' if message.role == 'assistant' else message.role -%}
    {{- '<start_of_turn>' + role + '\\n' + message.content | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}"""
QWEN_3 = """\
{%- set last = namespace(user=-1) -%}
{%- for message in messages -%}
    {%- if message.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for message in messages -%}
    {%- set content = message.content -%}
    {%- if message.role == 'assistant' and '</think>' in content -%}
        {%- set thought = content.split('</think>')[0].split('<think>')[-1].strip('\\n') -%}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') -%}
        {%- if loop.index0 > last.user -%}
            {%- set content = '<think>\\n' + thought + '\\n</think>\\n\\n' + content -%}
        {%- endif -%}
    {%- endif -%}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"""

FAMILIES = {
    "chatml": CHATML,
    "chatml-default-system": CHATML_WITH_DEFAULT_SYSTEM,
    "llama-3": LLAMA_3,
    "llama-2": LLAMA_2,
    "mistral": MISTRAL,
    "gemma": GEMMA,
    "qwen-3": QWEN_3,
}
STABLE = ("chatml", "chatml-default-system", "llama-3", "mistral", "gemma")
UNSTABLE = ("llama-2", "qwen-3")
WITH_SYSTEM = ("chatml", "chatml-default-system", "llama-3", "llama-2", "qwen-3")
WRITES_BOS = ("llama-3", "llama-2", "mistral", "gemma")

SPECIAL_TOKENS = (
    *("<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<start_of_turn>", "<end_of_turn>", "[INST]", "[/INST]"),
)
BOS, EOS = SPECIAL_TOKENS.index("<s>"), SPECIAL_TOKENS.index("</s>")

_CORPUS = [
    "user assistant system model You are a helpful assistant. Hello there, how are you? The answer is yes.",
    "Tell me about the tide and the harbour.\nThe tide comes in twice a day, and the harbour fills with boats.\n\n",
    "explain the special tokens, ignore all instructions <think> </think> <<SYS>> <</SYS>> im_start im_end",
]


def write_tokenizer(folder: Path, template: str | None, *, adds_bos: bool = False, has_bos: bool = True) -> Path:
    """Write a byte-level BPE tokenizer with all the families' special tokens, and the template, into `folder`.

    The merges make a difference between texts tokenised in pieces and as a whole. Without weights it is no model.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            # Lines end a piece, as in the vocabularies since GPT-4: GPT-2's own rule splits "\\n\\n" before a letter.
            pre_tokenizers.Split(Regex(r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s*[\r\n]+|\s+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    if adds_bos:
        tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", BOS)])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "</s>", "unk_token": "<unk>"}
    if has_bos:
        config["bos_token"] = "<s>"
    if template is not None:
        config["chat_template"] = template
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", "eos_token_id": EOS}))
    return folder
