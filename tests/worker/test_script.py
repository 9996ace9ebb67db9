import json

import pytest

from strata.worker.script import ScriptError, Turn, parse_script, read_script


def test_a_script_is_turns_and_the_last_is_repeated(tmp_path) -> None:
    file = tmp_path / "s.json"
    turns = [
        {"pieces": ["te", "xt", {"hex": "e6bc"}], "delay_ms": 1.5, "finish": "length", "fault": "die", "cached": 3},
        {"pieces": []},
    ]
    file.write_text(json.dumps({"turns": turns}), encoding="utf-8")
    script = read_script(file)
    assert script.turn(0) == Turn((b"te", b"xt", b"\xe6\xbc"), 1.5, "length", "die", 3)
    assert script.turn(1) == script.turn(9) == Turn(())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ([], 'one key "turns"'),
        ({"turns": [], "x": 1}, 'one key "turns"'),
        ({"turns": []}, "at least one turn"),
        ({"turns": [{"pieces": []}, 3]}, "turn 2 must be an object, not 3"),
        ({"turns": [{}]}, "turn 1: pieces must be a list, not None"),
        ({"turns": [{"pieces": [], "delay": 1}]}, "turn 1: unknown field 'delay'; there are pieces, delay_ms"),
        ({"turns": [{"pieces": [], "delay_ms": -1}]}, "turn 1: delay_ms must be a number of at least 0, not -1"),
        ({"turns": [{"pieces": [], "delay_ms": True}]}, "delay_ms"),
        ({"turns": [{"pieces": [], "finish": "end"}]}, "turn 1: finish must be stop or length, not 'end'"),
        ({"turns": [{"pieces": [], "fault": "burn"}]}, "fault must be null, raise, die, hang or memory, not 'burn'"),
        ({"turns": [{"pieces": [], "cached": -1}]}, "turn 1: cached must be"),
        ({"turns": [{"pieces": ["a", ""]}]}, "turn 1: piece 2 must be a text that is not empty"),
        ({"turns": [{"pieces": [{"hex": "e6b"}]}]}, "turn 1: piece 1 must be"),
        ({"turns": [{"pieces": ["\ud800"]}]}, "lone surrogate"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_script_is_refused_by_turn_and_field(value, said) -> None:
    with pytest.raises(ScriptError) as caught:
        parse_script(value)
    assert said in str(caught.value)


def test_a_file_that_is_none_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(ScriptError, match=r"none\.json: cannot be read: No such file"):
        read_script(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    with pytest.raises(ScriptError, match=r"bad\.json: is not JSON"):
        read_script(tmp_path / "bad.json")
    (tmp_path / "bad.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ScriptError, match=r"bad\.json: must be an object"):
        read_script(tmp_path / "bad.json")
