"""Prose of the Python installation: docstrings, the language reference's topics, and some source code.

Text of the Python distribution, under the PSF licence. Tests and installed packages are left out.
"""

import ast
import inspect
import re
import sysconfig
import warnings
from dataclasses import dataclass
from pathlib import Path

from pebble.data.words import held_out

_LEFT_OUT = {
    "test",
    "tests",
    "site-packages",
    "idlelib",
    "lib2to3",
    "turtledemo",
    "__pycache__",
    "ensurepip",
    "pydoc_data",
}
_SENTENCE = re.compile(r"(?<=[a-z)][.!?])\s+(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts by purpose; modules are whole in one list or the other."""

    prose: list[str]  # one text per module or topic
    held_out: list[str]
    code: list[str]
    sentences: list[str]  # single lines, from the training prose
    held_out_sentences: list[str]


def _docstrings(source: str) -> list[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old escapes in the library's own strings
        tree = ast.parse(source)
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    texts = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
    return [t for t in texts if t and len(t) > 30]


def _topics() -> dict[str, str]:
    from pydoc_data.topics import topics

    return {f"topic {key}": inspect.cleandoc(text) for key, text in topics.items()}


def _sentences(texts: list[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        for paragraph in text.split("\n\n"):
            line = " ".join(paragraph.split())
            if paragraph.lstrip().startswith((">>>", "*", "|")) or not line[:1].isalpha() or "<|" in line:
                continue
            found += [s for s in _SENTENCE.split(line) if 25 < len(s) < 300 and s[0].isupper() and s[-1] == "."]
    return found


def _plain(text: str) -> bool:
    """Whether a text has none of the control tokens' spellings in it."""
    return "<|" not in text and "think>" not in text


def collect(root: Path | None = None) -> Corpus:
    """Read the standard library under ``root`` (default: the running interpreter's), in a fixed order."""
    root = root or Path(sysconfig.get_paths()["stdlib"])
    prose: list[str] = []
    kept: list[str] = []
    code: list[str] = []
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root)
        if _LEFT_OUT & set(relative.parts):
            continue
        try:
            source = path.read_text("utf-8")
            docs = _docstrings(source)
        except (SyntaxError, UnicodeDecodeError):  # a few files are made to be unreadable
            continue
        out = held_out("module", relative.as_posix(), 5)
        text = "\n\n".join(docs)
        if docs and _plain(text):
            (kept if out else prose).append(text)
        if not out and _plain(source) and len(source) < 150_000:
            code.append(source)
    for name, text in sorted(_topics().items()):
        if _plain(text):
            (kept if held_out("module", name, 5) else prose).append(text)
    return Corpus(prose, kept, code, _sentences(prose), _sentences(kept))
