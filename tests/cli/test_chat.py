"""Chat and run in this process, over a model that says what it is told to."""

import io
import json
import os

import pytest

from strata.cli import converse, session
from strata.cli.main import main
from support.scripted import scripted_model

ANSWER = "I count.</think>\n\n1, 2, 3"


@pytest.fixture
def say(monkeypatch):
    """Let the model say something; returns the model and the settings it is loaded with, once it was."""
    seen: dict[str, object] = {}

    def choose(text: str, **options: object) -> dict[str, object]:
        def load_model(settings: object, _output: object, *, conversations: int) -> object:
            assert conversations == 1  # nobody else asks
            model = scripted_model(text, **options)  # type: ignore[arg-type]
            seen.update(settings=settings, model=model)
            return model

        monkeypatch.setattr(session, "load_model", load_model)
        return seen

    return choose


def prompt_of(seen: dict[str, object]) -> str:
    model = seen["model"]
    return model.detokenize(model.network.prompt, special=True)  # type: ignore[attr-defined, no-any-return]


def test_thoughts_are_left_out_where_nobody_looks_on(say, capsys) -> None:
    say(ANSWER)
    assert main(["chat", "Count."]) == 0
    assert capsys.readouterr() == ("1, 2, 3\n", "")


def test_an_answer_that_never_came_is_said(say, capsys) -> None:  # cases D05, D10
    for text, options, reason in (("I count.", [], "stop"), (ANSWER, ["--max-tokens", "3"], "length")):
        say(text)
        assert main(["chat", "Count.", *options]) == 0
        message = f"strata: warning: no answer: the model was still thinking when it ended ({reason})\n"
        assert capsys.readouterr() == ("\n", message)


def test_thoughts_are_dimmed_before_a_person(say, capsys, monkeypatch) -> None:
    say("I \x1b[31mcount.</think>\n\n1, 2, 3")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert main(["chat", "Count."]) == 0
    out, shown = capsys.readouterr()
    assert out == "1, 2, 3\n"
    assert shown.replace("\x1b[2m", "").replace("\x1b[0m", "") == "I \\x1b[31mcount.\n\n"
    assert shown.startswith("\x1b[2m")
    assert shown.endswith("\x1b[0m")


def test_an_answer_cannot_steer_a_terminal(say, capsys, monkeypatch) -> None:
    say("a\x1b[31m\tb\n")
    assert main(["run", "Say"]) == 0
    assert capsys.readouterr().out == "a\x1b[31m\tb\n"  # into a file it goes as it is
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert main(["run", "Say"]) == 0
    assert capsys.readouterr().out == "a\\x1b[31m\tb\n"


def test_a_line_break_is_added_only_where_none_is(say, capsys) -> None:
    for text, shown in (("a\n", "a\n"), ("a", "a\n"), ("\n", "\n"), ("", "\n")):
        say(text)
        assert main(["run", "Say"]) == 0
        assert capsys.readouterr().out == shown


def test_json_lines_hold_every_event(say, capsys) -> None:
    seen = say(ANSWER)
    assert main(["chat", "--json", "Count."]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    for kind, text in (("reasoning", "I count."), ("content", "1, 2, 3")):
        assert "".join(event["text"] for event in events if event["type"] == kind) == text
    prompt = len(seen["model"].network.prompt)  # type: ignore[attr-defined]
    said = len(seen["model"].network.script)  # type: ignore[attr-defined]
    usage = {"prompt_tokens": prompt, "completion_tokens": said, "cached_tokens": 0}
    assert events[-1] == {"type": "finished", "reason": "stop", "usage": usage}


def test_flags_become_settings_and_reach_the_prompt(say, capsys) -> None:
    seen = say("x")
    line = ["--threads", "3", "chat", "--no-thinking", "--system", "Be brief.", "--top-k", "-1", "--model", "m.gguf"]
    assert main([*line, "--seed=-5", "--max-tokens", "2", "--", "--json"]) == 0
    settings = seen["settings"]
    found = [getattr(settings, name) for name in ("threads", "thinking", "top_k", "model", "seed", "max_tokens")]
    assert found == [3, False, -1, "m.gguf", -5, 2]
    prompt = prompt_of(seen)
    assert "Be brief." in prompt
    assert "user\n--json" in prompt
    assert prompt.endswith("</think>\n\n")
    capsys.readouterr()


def test_a_prompt_may_come_through_a_pipe(say, capsys, monkeypatch) -> None:
    seen = say("x")
    for data, prompt in ((b"One\ntwo\n", "One\ntwo"), (b"One\r\n", "One"), ("\ufeff漢字".encode(), "漢字")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))
        assert main(["run"]) == 0
        assert prompt_of(seen) == prompt
    for data, message in ((b"", "is empty"), (b"\n", "is empty"), (b"a\xff", "not UTF-8 (byte 1)")):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        capsys.readouterr()
        assert main(["run"]) == 2
        assert message in capsys.readouterr().err
    assert main(["run", os.fsdecode(b"a\xff")]) == 2
    assert "the prompt is not UTF-8 (byte 1)" in capsys.readouterr().err
    assert main(["chat", ""]) == 2
    assert "the prompt is empty" in capsys.readouterr().err


def test_without_any_prompt_run_and_json_refuse(say, capsys, monkeypatch) -> None:
    say("x")
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    for line in (["run"], ["--json", "chat"], ["--json", "run"]):
        assert main(line) == 2
        out, err = capsys.readouterr()
        assert "needs a prompt" in err or "no prompt" in err
        assert (json.loads(out)["type"] == "error") if "--json" in line else not out


def test_special_makes_control_tokens_of_text(say, capsys) -> None:
    seen = say("x")
    main(["run", "<|im_start|>"])
    plain = len(seen["model"].network.prompt)  # type: ignore[attr-defined]
    main(["run", "--special", "<|im_start|>"])
    assert (plain > 1, len(seen["model"].network.prompt)) == (True, 1)  # type: ignore[attr-defined]
    capsys.readouterr()


def test_a_prompt_too_long_is_one_line_and_exit_code_1(say, capsys) -> None:  # cases O01, O02
    say("x", context=64)
    for flags in ([], ["--json"]):
        assert main([*flags, "run", "1 " * 300]) == 1
        out, err = capsys.readouterr()
        assert err.startswith("strata: error: the prompt has ")
        assert err.count("\n") == 1
        assert bool(out) == bool(flags)


def test_a_bug_of_ours_is_a_sentence_and_debug_shows_where(say, capsys, monkeypatch) -> None:
    say("x")
    monkeypatch.setattr("strata.worker.resident.Resident.tick", lambda _engine: list("abc").pop(9))
    assert main(["run", "a"]) == 1
    err = capsys.readouterr().err
    assert err.startswith("strata: error: unexpected IndexError: ")
    assert "--debug" in err
    assert main(["--debug", "run", "a"]) == 1
    assert "Traceback" in capsys.readouterr().err


class Typist:
    """Types lines, or presses Ctrl-C (None) or Ctrl-D (the end)."""

    def __init__(self, *lines: str | None) -> None:
        self.lines = list(lines)

    def __call__(self) -> str | None:
        if not self.lines:
            return None
        line = self.lines.pop(0)
        if line is None:
            raise KeyboardInterrupt
        return line


@pytest.fixture
def type_lines(monkeypatch):
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    return lambda *lines: monkeypatch.setattr(converse, "_read_line", Typist(*lines))


def test_a_conversation_remembers_until_it_is_reset(say, capsys, type_lines) -> None:
    seen = say(ANSWER)
    type_lines("First question", "", "Second question")
    assert main(["chat"]) == 0
    assert prompt_of(seen).index("First question") < prompt_of(seen).index("1, 2, 3")
    assert "I count." in prompt_of(seen)
    assert prompt_of(seen).index("1, 2, 3") < prompt_of(seen).index("Second question")
    type_lines("First question", "/reset", "Second question", "/exit", "Third question")
    assert main(["chat"]) == 0
    assert "First question" not in prompt_of(seen)
    assert "Second question" in prompt_of(seen)
    out, err = capsys.readouterr()
    assert out == "1, 2, 3\n" * 4
    assert "/help lists" in err


def test_commands_change_what_the_model_is_asked(say, capsys, type_lines) -> None:
    seen = say("x")
    prompts = []
    for lines in (
        ["/think off"],
        ["/think on"],
        ["/effort low"],
        ["/system Be brief."],
        ["/system Be brief.", "/system"],
        ["/think off", "/effort low"],
    ):
        type_lines(*lines, "Hi")
        assert main(["chat"]) == 0
        prompts.append(prompt_of(seen))
    off, on, low, brief, plain, off_and_low = prompts
    assert off.endswith("</think>\n\n")
    assert on.endswith("<think>\n")
    assert low != on
    assert "Be brief." in brief
    assert plain == on
    assert off_and_low == off
    capsys.readouterr()


def test_commands_answer_on_stderr(capsys, say, type_lines) -> None:
    say("x")
    type_lines("/help", "/think", "/think maybe", "/effort", "/effort low", "/reset", "/rset", "/zzz", "/")
    assert main(["chat"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    for text in ("/system TEXT", "thinking is on", "effort is the default", "effort is low", "did you mean /reset?"):
        assert text in err
    assert err.count("/help lists all") == 2


def test_a_question_that_fails_is_forgotten_and_the_talk_goes_on(say, capsys, type_lines) -> None:
    seen = say("x", context=200)
    type_lines("1 " * 300, "Hello")
    assert main(["chat"]) == 0
    out, err = capsys.readouterr()
    assert err.count("strata: error: ") == 1
    assert out == "\n"  # all the model said was a thought
    assert prompt_of(seen).count("user\n") == 1


def test_an_effort_that_is_none_is_refused_where_it_is_said(say, capsys, type_lines) -> None:
    seen = say("x")
    type_lines("/effort banana", "/effort", "Hi")
    assert main(["chat", "--effort", "low"]) == 0
    out, err = capsys.readouterr()
    assert "strata: error: Unknown reasoning effort 'banana'; known levels are xhigh" in err
    assert "effort is low" in err
    assert out == "\n"
    seen.clear()
    assert main(["chat", "--effort", "banana", "Hi"]) == 1
    assert not seen


def test_ctrl_c_twice_leaves_a_conversation(say, capsys, type_lines) -> None:
    say(ANSWER)
    type_lines(None, "Hi", None, None, "never read")
    assert main(["chat"]) == 130
    out, err = capsys.readouterr()
    assert out == "1, 2, 3\n"
    assert err.count("stopped.") == 2
