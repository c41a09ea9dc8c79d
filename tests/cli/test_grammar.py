"""`radixrt grammar check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from radixrt.cli import app
from radixrt.cli.grammar import without_white_space

AGE = '{"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}'


def check(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["grammar", "check", *arguments])
    return result.exit_code, result.output


def test_accepted() -> None:
    assert check(AGE, '{"age": 42}', '{\n  "age": 7\n}') == (
        0,
        'accepted: {"age": 42}\naccepted: {·  "age": 7·}\n',
    )


def test_rejected_with_a_caret_under_the_byte() -> None:
    status, output = check(AGE, '{"age": 42}', '{"age": 142}')
    assert status == 1
    lines = output.splitlines()
    assert lines[1] == 'rejected: {"age": 142}: at byte 9'
    assert lines[2][lines[3].index("^")] == "2"


def test_incomplete() -> None:
    status, output = check(AGE, '{"age"')
    assert status == 1
    assert output.startswith('incomplete: {"age": ends after byte 6\n')


def test_a_refused_schema_is_told_with_path_and_keyword() -> None:
    status, output = check('{"properties": {"a": {"contains": {}}}}', "1")
    assert status == 2
    assert output.startswith("refused: json_schema #/properties/a: contains: ")


def test_files(tmp_path: Path) -> None:
    (tmp_path / "age.schema.json").write_text(AGE)
    (tmp_path / "good.json").write_text(json.dumps({"age": 1}, indent=2) + "\n")
    (tmp_path / "bad.json").write_text('{"age": "1"}\n')
    schema, good, bad = (str(tmp_path / name) for name in ("age.schema.json", "good.json", "bad.json"))
    status, output = check(schema, good, bad)
    assert status == 1
    assert output.count("accepted") == 1
    assert output.count("rejected") == 1


@pytest.mark.parametrize("backend", ["llguidance", "outlines-core"])
def test_a_pattern(backend: str) -> None:
    status, output = check("--regex", "--backend", backend, r"\d{4}-\d\d", "2024-02", "2024-2")
    assert status == 1
    assert output.startswith("accepted: 2024-02\nincomplete: 2024-2")
    assert check("--regex", "(?=a)b", "b")[0] == 2


def test_white_space_may_be_kept() -> None:
    assert check("--verbatim", AGE, '{"age": 42}')[0] == 0
    assert check("--verbatim", AGE, '{ "age": 42}')[0] == 1


def test_help_has_examples() -> None:
    status, output = check("--help")
    assert status == 0
    assert "radixrt grammar check" in output
    assert "person.schema.json alice.json" in output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"a b": [1,\n 2]}', '{"a b":[1,2]}'),
        (r'"\" \\" ', r'"\" \\"'),
        ('"a ', '"a '),
        ("1 2", "1 2"),
        (" 7\n", "7"),
        ('[ "a" ,"b" ]', '["a","b"]'),
    ],
)
def test_only_white_space_between_tokens_goes(text: str, expected: str) -> None:
    assert without_white_space(text) == expected
