"""What the commands do on a machine with a GPU, from a bare checkout: do they use it, say so, and answer the same.

    python tools/gpu_commands.py [--only plan run serve bench chat calibrate] [--vram 24GB] [--json FILE]

On a file of random weights in the released shapes (`python -m strata.lab.synthetic`, written to --scratch if not there)
or the one given. `serve` asks the same question again, streamed, with less VRAM and with as much as before; all
answers have to be one text, and SIGTERM has to end the server with 0. Needs what `pip install .` brings. Results are
written as they come, beside what earlier runs have left; exits with 1 if a command failed or a text differed.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[1]
TALK = {"messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 48, "temperature": 0}
LAST = 40
"""Lines of a command's output that are kept."""

Found = dict[str, Any]


class Commands:
    """The commands, with the flags of one model.

    Args:
        given: as parsed.
    """

    def __init__(self, given: argparse.Namespace) -> None:
        self._file, self._end = str(given.model), time.monotonic() + given.within
        self._card = ["--vram", given.vram] if given.vram else []
        self._sizes, self._server = (given.smaller, given.vram), _Server(given.port)
        self._environment = os.environ | {"PYTHONPATH": _joined(str(ROOT / "src"), os.environ.get("PYTHONPATH", ""))}

    def plan(self) -> Found:
        """Who gets how much of this machine's memory."""
        return self._strata("plan", self._file, *self._card)

    def run(self) -> Found:
        """A text goes on; a line says where."""
        return self._strata("run", "--model", self._file, *self._card, "--max-tokens", "12", "Once upon a time")

    def pebble(self) -> Found:
        """The model in the box, without a flag."""
        return self._strata("run", "--max-tokens", "24", "Count from 1 to 20.")

    def chat(self) -> Found:
        """The same with a template, its prompt from standard input."""
        return self._strata("chat", "--max-tokens", "40", text="Count from 1 to 12.")

    def bench(self) -> Found:
        """Decoding, paired."""
        flags = ["--rounds", "1", "--tokens", "32"]
        return self._strata("bench", "decode", "--model", self._file, *self._card, *flags)

    def calibrate(self) -> Found:
        """This machine, quickly."""
        return self._strata("calibrate", self._file, *self._card, "--quick")

    def serve(self) -> Found:
        """Answers over HTTP, at two sizes of VRAM."""
        began = time.monotonic()
        port = str(self._server.port)
        with subprocess.Popen(
            [sys.executable, "-m", "strata", "serve", self._file, *self._card, "--port", port],
            env=self._environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as server:  # fmt: skip
            try:
                found = self._served(server, began)
            finally:
                server.send_signal(signal.SIGTERM)
                try:
                    out, _ = server.communicate(timeout=30)
                except subprocess.TimeoutExpired:
                    server.kill()
                    out, _ = server.communicate()
        texts = set(found["texts"].values())
        failed = server.returncode != 0 or len(texts) != 1 or None in texts
        return found | {"exit": server.returncode, "failed": failed, "said": _last(out.decode())}

    def _served(self, server: "subprocess.Popen[bytes]", began: float) -> Found:
        while (status := self._server.ask("/health")[0]) != 200:
            if server.poll() is not None or time.monotonic() > self._end:
                raise RuntimeError(f"the server is not ready: {status}")
            time.sleep(0.25)
        found: Found = {"ready_s": round(time.monotonic() - began, 1), "texts": {}, "sizes": {}}
        for name in ("first", "again"):
            found["texts"][name] = self._server.text()
        found["texts"]["streamed"] = self._server.streamed()
        for size in filter(None, self._sizes if self._card else ()):
            found["sizes"][size] = self._server.ask("/v1/strata/vram", {"vram": size})
            found["texts"][size] = self._server.text()
        told = json.loads(self._server.ask("/props")[1])
        lines = self._server.ask("/metrics")[1].splitlines()
        found["placed"] = told.get("placed")
        found["metrics"] = [
            line for line in lines if line.startswith(("strata:expert_", "strata:vram", "strata:device"))
        ]
        return found

    def _strata(self, *arguments: str, text: str = "") -> Found:
        began, limit = time.monotonic(), max(1.0, self._end - time.monotonic())
        command = [sys.executable, "-m", "strata", *arguments]
        try:
            done = subprocess.run(
                command, env=self._environment, input=text, capture_output=True, text=True, timeout=limit, check=False
            )
        except subprocess.TimeoutExpired as late:
            parts = [part for part in (late.stderr, late.stdout) if part]  # bytes, although text was asked for
            said = "".join(part if isinstance(part, str) else part.decode(errors="replace") for part in parts)
            return {"failed": True, "said": [*_last(said), f"not done after {limit:.0f} s"]}
        took = round(time.monotonic() - began, 1)
        return {
            "failed": done.returncode != 0,
            "exit": done.returncode,
            "s": took,
            "said": _last(done.stderr + done.stdout),
        }


class _Server:
    """Where a server of ours answers."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, body: Found | None = None) -> tuple[int, str]:
        """Status and text of an answer; 0 and the reason where nobody answers."""
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}", data, {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(asked, timeout=120) as answer:  # noqa: S310  # our own address
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def text(self) -> str | None:
        """The answer to the question; None if there is none."""
        status, text = self.ask("/v1/chat/completions", TALK)
        return json.loads(text)["choices"][0]["message"]["content"] if status == 200 else None

    def streamed(self) -> str:
        """The same in pieces."""
        _, text = self.ask("/v1/chat/completions", TALK | {"stream": True})
        chunks = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        return "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])


def _last(text: str) -> list[str]:
    return text.strip().splitlines()[-LAST:]


def _joined(*paths: str) -> str:
    return os.pathsep.join(path for path in paths if path)


def main() -> int:
    """Run what is asked for, print, keep."""
    every = ("plan", "pebble", "run", "serve", "bench", "chat", "calibrate")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=every, choices=every, metavar="COMMAND", help=", ".join(every))
    parser.add_argument("--model", type=Path, help="instead of a file that is written")
    parser.add_argument("--vram", default="24GB", help="of the card; empty for all that is free")
    parser.add_argument("--smaller", default="20GB", help="to which the server's model shrinks for a while")
    parser.add_argument("--port", type=int, default=8765, help="of the server")
    parser.add_argument("--within", type=float, default=1200.0, help="seconds for everything")
    parser.add_argument("--scratch", type=Path, default=Path("/dev/shm"))  # noqa: S108  # memory, if there is enough
    parser.add_argument("--json", type=Path, default=ROOT / "bench/results/h200-commands.json")
    given = parser.parse_args()
    if given.model is None:
        given.model = given.scratch / "strata-synthetic.gguf"
        if not given.model.exists():
            _synthetic(given.model)
    commands = Commands(given)
    document: Found = json.loads(given.json.read_text()) if given.json.exists() else {}
    for name in (one for one in every if one in given.only):
        run: Callable[[], Found] = getattr(commands, name)
        try:
            found = run()
        except Exception as error:  # noqa: BLE001  # the others go on
            found = {"failed": True, "said": [f"{type(error).__name__}: {error}"]}
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        document[name] = {"when": when, "python": platform.python_version(), **found}
        given.json.write_text(json.dumps(document, indent=1) + "\n")
        print(f"== {name}: {'failed' if found['failed'] else 'right'}")
        print(*(f"   {line}" for line in found["said"]), sep="\n", flush=True)
    return int(any(document[name]["failed"] for name in given.only))


def _synthetic(path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src")}
    subprocess.run([sys.executable, "-m", "strata.lab.synthetic", str(path)], check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
