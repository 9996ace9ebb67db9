"""The command as a process: what only a real one, with real pipes, signals and terminals, can show."""

import dataclasses
import json
import os
import pty
import resource
import select
import subprocess
import termios
import time

import psutil
import pytest

import strata as library
from strata.api import Usage
from support.command import COMMAND, environment, strata


@pytest.fixture(scope="module")
def model(tiny):
    return library.load(tiny)


def test_chat_prints_the_answer_alone(tiny, model) -> None:
    done = strata("chat", "--model", str(tiny), "--no-thinking", "--max-tokens", "12", "Count from 1 to 3.")
    reply = model.chat("Count from 1 to 3.", thinking=False, max_tokens=12)
    assert (done.returncode, done.stderr) == (0, "")
    assert reply.text
    assert done.stdout == reply.text.rstrip("\n") + "\n" or done.stdout == reply.text


def test_run_speaks_json_and_takes_settings_from_everywhere(tiny, model, tmp_path) -> None:
    config = tmp_path / "c.toml"
    config.write_text(f'model = "{tiny}"\ntemperature = 1.5\nseed = 1\nmax_tokens = 1\n', encoding="utf-8")
    text = "The quick brown 狐"
    done = strata(
        "--json", "run", "--max-tokens", "9",
        env=environment(STRATA_SEED="8", STRATA_CONFIG=str(config)), input=text + "\n", stdin=None,
    )  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines()]
    reply = model.complete(text, temperature=1.5, seed=8, max_tokens=9)
    assert (done.returncode, done.stderr) == (0, "")
    assert "".join(event["text"] for event in events[:-1]) == reply.text
    assert {event["type"] for event in events[:-1]} == {"content"}
    assert reply.usage == Usage(len(model.tokenize(text)), 9, 0)
    assert events[-1] == {
        "type": "finished",
        "reason": reply.finish_reason,
        "usage": dataclasses.asdict(reply.usage),
    }


def test_the_model_in_the_box_counts_in_time() -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = strata("chat", "Count from 1 to 20.")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ", ".join(map(str, range(1, 21))) + "\n"
    # Ten seconds is the promise. Time of the processor, because others may be using the machine too.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 10


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">&-", 0, ""),
        ("2>&-", 0, ""),
        (">/dev/full", 1, "strata: error: [Errno 28] No space left on device\n"),
        ("2>&- --no-such-flag", 2, ""),
    ],
)
def test_outputs_that_take_nothing_are_no_traceback(redirection, code, said) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {redirection}', "sh", *COMMAND, "config"],
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    assert (done.returncode, done.stderr) == (code, said)


@pytest.mark.parametrize("command", ["chat", "run"])
def test_a_closed_stdin_is_an_empty_prompt(command) -> None:
    line = ["sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, command]
    done = subprocess.run(line, capture_output=True, text=True, check=False, env=environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("strata: error: the prompt is empty")


@pytest.mark.parametrize("arguments", [["--help"], [], ["chat", "--help"], ["--version"]], ids=" ".join)
def test_help_is_there_without_waiting_for_torch(arguments) -> None:
    code = (
        "import sys; from strata.cli.main import main\n"
        f"code = main({arguments!r}); print(sorted({{'torch', 'numpy', 'tokenizers'}} & set(sys.modules)), code)"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=False, env=environment())
    assert done.stderr == ""
    assert done.stdout.endswith("[] 0\n")
    assert "usage: strata" in done.stdout.lower() or done.stdout.startswith(library.__version__)


def test_a_reader_that_leaves_is_no_error(tiny) -> None:
    process = subprocess.Popen(
        [*COMMAND, "run", "--model", str(tiny), "Go"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
    )
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.stdout.close()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (141, b"")


def test_a_reader_of_help_that_leaves_is_no_error() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run([*COMMAND, "--help"], stdout=writer, stderr=subprocess.PIPE, check=False, env=environment())
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


# With a progress bar from the first moment, however fast the machine.
IMPATIENT = [
    *COMMAND[:1], "-c",
    "import sys; from strata.cli import main, progress; progress.PATIENCE = 0.0; sys.exit(main.main())",
]  # fmt: skip
SHOW_CURSOR = b"\x1b[?25h"
"""What ends every progress bar."""


class Terminal:
    """A terminal with the command in it."""

    def __init__(self, *arguments: str) -> None:
        self.master, slave = pty.openpty()
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [*IMPATIENT, *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=environment(TERM="xterm"),
            preexec_fn=lambda: (os.setsid(), _control(slave)),  # noqa: PLW1509
        )
        self.seen = b""

    def wait_for(self, text: bytes, seconds: float = 60) -> None:
        """Read until a text appears; what came before it is forgotten."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if select.select([self.master], [], [], 0.2)[0]:
                self.seen += os.read(self.master, 1 << 16)
        self.seen = self.seen[self.seen.index(text) + len(text) :]

    def wait_for_more(self, count: int) -> None:
        """Read until so many bytes more have come."""
        while len(self.seen) < count:
            assert select.select([self.master], [], [], 60)[0]
            self.seen += os.read(self.master, 1 << 16)

    def type(self, text: bytes) -> None:
        os.write(self.master, text)

    def finish(self, seconds: float = 20) -> int:
        """Wait for the end, reading what else comes."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"still running after {self.seen!r}"
            if select.select([self.master], [], [], 0.1)[0]:
                self.seen += os.read(self.master, 1 << 16)
        while select.select([self.master], [], [], 0)[0]:
            self.seen += os.read(self.master, 1 << 16)
        assert termios.tcgetattr(self.slave) == self.before
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


def _control(slave: int) -> None:
    import fcntl

    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


@pytest.fixture
def terminal():
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(*arguments))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.mark.parametrize("moment", ["while loading", "while answering"])
def test_ctrl_c_stops_at_once_and_leaves_the_terminal_sane(tiny, terminal, moment) -> None:
    screen = terminal("run", "--model", str(tiny), "--temperature", "1", "The quick")
    screen.wait_for(b"Loading")
    if moment == "while answering":
        screen.wait_for(SHOW_CURSOR)  # of loading
        screen.wait_for(SHOW_CURSOR)  # of reading the prompt
        screen.wait_for_more(20)
    assert screen.process.poll() is None, "the answer came all at once"
    begun = time.monotonic()
    screen.type(b"\x03\x03")  # twice in a row is as quiet
    assert screen.finish() == 130
    assert time.monotonic() - begun < 2  # nothing is left to compute or to put away
    assert b"Traceback" not in screen.seen
    assert moment == "while answering" or SHOW_CURSOR in screen.seen


def test_a_conversation_goes_on_after_a_stopped_answer(tiny, terminal) -> None:
    screen = terminal("chat", "--model", str(tiny), "--no-thinking")
    screen.wait_for(b"> ")
    screen.type(b"/effrt low\r")
    screen.wait_for(b"did you mean /effort?")
    screen.wait_for(b"> ")
    screen.type(b"Tell me\r")
    screen.wait_for(b"Tell me\r\n")
    screen.wait_for_more(3)
    screen.type(b"\x03")
    screen.wait_for(b"strata: stopped.")
    screen.wait_for(b"> ")
    screen.type(b"/exit\r")
    assert screen.finish() == 0
    assert b"Traceback" not in screen.seen


def test_a_conversation_outlives_its_engine(terminal) -> None:
    screen = terminal("chat", "--no-thinking")
    screen.wait_for(b"> ")
    screen.type(b"Count from 1 to 90.\r")
    screen.wait_for(b"1, 2, 3")
    children = psutil.Process(screen.process.pid).children()
    (engine,) = [child for child in children if "strata.worker" in child.cmdline()]
    engine.kill()
    screen.wait_for(b"strata: error: the engine's process was killed (signal 9)")
    screen.wait_for(b"> ")
    screen.type(b"Count from 1 to 4.\r")
    screen.wait_for(b"1, 2, 3, 4\r\n")
    screen.wait_for(b"> ")
    screen.type(b"/exit\r")
    assert screen.finish() == 0


def test_the_engine_runs_beside_the_command_which_stays_light(tiny) -> None:
    code = (
        "import sys; from strata.cli.main import main\n"
        f"code = main(['run', '--model', {str(tiny)!r}, '--max-tokens', '3', 'The quick'])\n"
        "print(sorted({'torch', 'numba', 'llguidance'} & set(sys.modules)), code)"
    )
    done = subprocess.run([COMMAND[0], "-c", code], capture_output=True, text=True, check=False, env=environment())
    assert done.stderr == ""
    assert done.stdout.endswith("[] 0\n")


def test_the_text_is_the_same_for_every_number_of_drafts_and_a_trace_says_what_was_done(tmp_path) -> None:
    answers = set()
    for drafts in (0, 7):
        file = tmp_path / "trace.json"
        options = ["--drafts", str(drafts), "--seed", "7", "--max-tokens", "24", "--temperature", "0.8"]
        done = strata("run", *options, "--trace", str(file), "1, 2, 3, 4,")
        assert (done.returncode, done.stderr) == (0, "")
        answers.add(done.stdout)
        windows = [event for event in json.loads(file.read_bytes())["traceEvents"] if event["name"] == "window"]
        assert any(event["args"]["drafted"] for event in windows) == (drafts > 0)
    assert len(answers) == 1


def test_a_trace_that_cannot_be_written_is_found_before_anything_is_loaded() -> None:
    done = strata("run", "--trace", "/nowhere/trace.json", "--model", "/nowhere/model.gguf", "Hi")
    assert done.returncode == 1
    assert (
        done.stderr == "strata: error: the trace cannot be written to /nowhere/trace.json: No such file or directory\n"
    )


def test_what_is_wrong_with_a_model_is_said_as_ever(tmp_path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    done = strata("run", "--model", str(tmp_path / "m.gguf"), "Hi")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("strata: error: ")
    assert "m.gguf" in done.stderr
    assert done.stderr.count("\n") == 1


def test_names_that_are_no_text_are_names(tiny, tmp_path) -> None:  # case M16
    model = tmp_path / os.fsdecode(b"caf\xe9\nx.gguf")
    model.symlink_to(tiny)
    done = strata("run", "--model", str(model), "--max-tokens", "2", "Hi")
    assert (done.returncode, done.stderr) == (0, "")
    model.unlink()
    model.write_bytes(b"GGUF")
    done = strata("run", "--model", str(model), "Hi")
    assert done.returncode == 1
    assert "caf\\xe9 x.gguf: " in done.stderr
