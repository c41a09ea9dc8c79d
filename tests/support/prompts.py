"""Twenty prompts of different kinds, with which kernels and peers are compared."""

from __future__ import annotations

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "SELECT name, age FROM people WHERE",
    "Dear Sir or Madam,\n\nI am writing to",
    '{"name": "Ada", "born": 1815, "works": [',
    "1 2 3 4 5 6 7",
    "Question: What is 17 + 25?\nAnswer:",
    "The chemical symbol for gold is",
    "To make a good cup of tea, first",
    "Il était une fois",
    "Die Hauptstadt von Deutschland ist",
    "🙂 means happy, 🙁 means",
    "   leading spaces and\ttabs",
    "# Introduction\n\nThis chapter is about",
    "A B C D E F G H I J K L M N",
    'He said, "I don\'t know," and then',
    "<|im_start|>user\nWhat is the capital of Italy?<|im_end|>\n<|im_start|>assistant\n",
    "<|im_start|>user\nWrite a short poem about rain.<|im_end|>\n<|im_start|>assistant\n",
    "The quick brown fox jumps over the lazy dog. " * 12,
]
