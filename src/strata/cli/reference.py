"""The parts of docs/cli.md that the code knows best: `python -m strata.cli.reference docs/cli.md` renews them."""

import sys
from collections.abc import Callable
from pathlib import Path

from strata.cli.app import build
from strata.cli.context import Context
from strata.cli.interrupt import Interrupts
from strata.config.models import OWN, SHARED
from strata.config.settings import SETTINGS


def settings() -> str:
    """A table of all settings."""
    lines = ["| key in the file | environment | flag | values | default |", "|---|---|---|---|---|"]
    for setting in SETTINGS.values():
        flag = f"`{setting.flag}`" + (f", `--no-{setting.flag[2:]}`" if setting.default is True else "")
        cells = f"`{setting.name}`", f"`{setting.variable}`", flag, setting.kind.meaning, setting.default_in_words
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def models() -> str:
    """A table of the keys of a `[[model]]` table."""
    lines = ["| key | values | |", "|---|---|---|"]
    lines += [f"| `{name}` | {kind.meaning} | {meaning} |" for name, (kind, meaning) in OWN.items()]
    shared = ", ".join(f"`{name}`" for name in SHARED)
    return "\n".join([*lines, f"| {shared} | as below | For this model alone. |"])


def commands() -> str:
    """Every command with its arguments and options."""
    app = build(Context(Interrupts()))
    text = app.generate_docs(output_format="markdown", heading_level=2, usage_name="strata")
    started = f" -m {__spec__.name}"  # cyclopts takes how this program was started for a part of the usage
    return text[text.index("\n### strata chat") :].strip().replace(started, "")


PARTS: dict[str, Callable[[], str]] = {"models": models, "settings": settings, "commands": commands}


def renew(text: str) -> str:
    """A document with everything between its markers written anew."""
    for name, render in PARTS.items():
        before, start, rest = text.partition(f"<!-- generated: {name} -->\n")
        _, end, after = rest.partition(f"\n<!-- end: {name} -->")
        assert end, f"the document has no place for {name}"
        text = before + start + render() + end + after
    return text


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(renew(path.read_text(encoding="utf-8")), encoding="utf-8")
