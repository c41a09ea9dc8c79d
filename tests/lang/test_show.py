from __future__ import annotations

from radixrt.errors import PromptTooLong
from radixrt.lang import ProgramState, function, gen, render_plain, render_rich, user
from tests.lang.scripted import Reply, Scripted


def test_a_tree_shows_texts_branches_and_tokens(backend: Scripted) -> None:
    backend.script = lambda prompt, node: (
        Reply([], error=PromptTooLong("too long"))
        if prompt.endswith("?")
        else "a\nb"
        if prompt.endswith("0")
        else "c" * 80
    )

    @function
    def poem(s: ProgramState) -> None:
        s += "Write "
        s += "now."
        s += user("hi")
        forks = s.fork(2)
        forks += lambda i: f"{i}" + gen("line")
        forks.join()
        s += "end?" + gen()

    s = poem.run()
    reused = len("Write now.(chat)\n[user]hi[/user]\n")
    prompt = reused + 1
    assert render_plain("poem", s.tree(), characters=11).splitlines() == [
        "poem",
        '├── text  "Write now."',
        "├── role  user begins",
        '├── text  "hi"',
        "├── role  user ends",
        "├── fork  2 branches",
        "│   ├── branch 0",
        '│   │   ├── text  "0"',
        f'│   │   └── gen line  "a\\nb"  {prompt - reused + 3} computed, {reused} reused, stop',
        "│   └── branch 1",
        '│       ├── text  "1"',
        f'│       └── gen line  "ccccc…ccccc"  {prompt - reused + 80} computed, {reused} reused, stop',
        "├── join  gather_variable",
        '├── text  "end?"',
        "└── gen  failed: too long",
    ]


def test_a_rich_tree_has_the_same_lines(backend: Scripted) -> None:
    from rich.console import Console

    @function
    def program(s: ProgramState) -> None:
        s += "[bold]not markup[/bold]"
        s.fork(2).join()
        s += gen("x")

    tree = program.run().tree()
    console = Console(width=200, record=True)
    with console.capture() as capture:
        console.print(render_rich("program", tree))
    assert capture.get().rstrip().splitlines() == render_plain("program", tree).splitlines()
