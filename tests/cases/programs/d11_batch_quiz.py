import sglang as sgl

SHOTS = [("How many sides has a hexagon?", "six"), ("Which metal is liquid at room temperature?", "mercury")]


@sgl.function
def quiz(s, question, hint="none"):
    for q, a in SHOTS:
        s += "Question: " + q + "\nAnswer: " + a + "\n"
    s += "Question: " + question + " (hint: " + hint + ")\nAnswer:"
    s += sgl.gen("answer", stop=["\n", "Question"])
    return len(question)


def main(sgl_backend=None):
    qs = [f"What is number {i} on the list?" for i in range(5)]
    named = quiz.run_batch(
        [{"question": q, "hint": str(i)} for i, q in enumerate(qs)],
        max_new_tokens=5,
        temperature=0,
        progress_bar=True,
        num_threads="auto",
        backend=sgl_backend,
    )
    rows = quiz.run_batch([(q,) for q in qs[:3]], max_new_tokens=3, stop=["?"], num_threads=2, backend=sgl_backend)
    mixed = quiz.run_batch([[qs[0]], [qs[1], "easy"]], max_new_tokens=2, num_threads=1, backend=sgl_backend)
    lazy = quiz.run_batch([{"question": q} for q in qs], max_new_tokens=2, generator_style=True, backend=sgl_backend)
    single = quiz.run_batch([{"question": "alone?"}], max_new_tokens=2, progress_bar=True, backend=sgl_backend)
    try:
        quiz.run_batch([("a", "b", "one too many")], backend=sgl_backend)
        refused = False
    except Exception:
        refused = True
    runs = {"named": named, "rows": rows, "mixed": mixed, "lazy": list(lazy), "single": single}
    return {"qs": qs, "empty": quiz.run_batch([], backend=sgl_backend), "refused": refused} | {
        k: [(s.text(), s["answer"], s.ret_value) for s in v] for k, v in runs.items()
    }


def check(result):
    qs = result["qs"]
    assert result["empty"] == [] and result["refused"]
    assert [len(result[k]) for k in ("named", "rows", "mixed", "lazy", "single")] == [5, 3, 2, 5, 1]
    head = "".join("Question: " + q + "\nAnswer: " + a + "\n" for q, a in SHOTS)
    hints = {"named": list("01234"), "rows": ["none"] * 3, "mixed": ["none", "easy"], "lazy": ["none"] * 5}
    for key, hs in hints.items():
        for q, h, (text, answer, ret) in zip(qs, hs, result[key]):
            assert text == head + "Question: " + q + " (hint: " + h + ")\nAnswer:" + answer
            assert "\n" not in answer and "Question" not in answer and ret == len(q)
