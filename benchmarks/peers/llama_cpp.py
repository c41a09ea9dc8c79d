"""What llama.cpp chooses after each prefix it is given; run by benchmarks/engine.py with a Python that has xllamacpp.

Reads `{"model": path, "prefixes": [[ids], ...]}` as JSON from standard input, prints the chosen ids as JSON.
"""

from __future__ import annotations

import json
import sys
from urllib.request import Request, urlopen

import xllamacpp


def main() -> None:
    asked = json.load(sys.stdin)
    params = xllamacpp.CommonParams()
    params.model.path = asked["model"]
    params.n_ctx = 2048
    params.n_parallel = 1
    params.warmup = False
    server = xllamacpp.Server(params)
    chosen = []
    for prefix in asked["prefixes"]:
        body = {"prompt": prefix, "n_predict": 1, "temperature": 0.0, "cache_prompt": True, "return_tokens": True}
        request = Request(f"{server.listening_address}/completion", json.dumps(body).encode())
        request.add_header("Content-Type", "application/json")
        with urlopen(request) as answer:
            tokens = json.load(answer)["tokens"]
        chosen.append(tokens[0] if tokens else -1)
    print(json.dumps(chosen))


if __name__ == "__main__":
    main()
