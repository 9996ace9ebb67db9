"""The page's files: what is vendored is what it says, and what is ours keeps the rules."""

import hashlib
import re
import subprocess

import pytest

from strata.server.web.files import FOLDER, read_files
from strata.server.web.routes import HEADERS, POLICY

VENDOR = FOLDER / "vendor"
OURS = sorted(
    path for path in FOLDER.rglob("*") if path.suffix in {".js", ".css", ".html", ".svg"} and VENDOR not in path.parents
)
IMPORT = re.compile(r"""(?:from|import)\s*\(?\s*["'](\.{1,2}/[^"']+)["']""")


def names(paths):
    return [path.relative_to(FOLDER).as_posix() for path in paths]


def test_vendored_files_are_those_that_were_looked_at() -> None:
    listed = dict(reversed(line.split("  ")) for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    there = {path.relative_to(VENDOR).as_posix(): path for path in VENDOR.rglob("*") if path.is_file()}
    assert set(there) - {"SHA256SUMS"} == set(listed)
    for name, path in there.items():
        if name != "SHA256SUMS":
            assert hashlib.sha256(path.read_bytes()).hexdigest() == listed[name], name


@pytest.mark.parametrize(
    ("name", "word"), [("marked", "MIT"), ("dompurify", "Apache License"), ("highlight", "BSD 3-Clause License")]
)
def test_vendored_files_come_with_their_licence(name, word) -> None:
    assert word in (VENDOR / f"{name}.LICENSE.txt").read_text(encoding="utf-8")


def test_files_have_a_type_a_version_and_a_policy(site) -> None:
    for name, file in read_files().items():
        path = "/" if name == "index.html" else f"/static/{name}"
        reply = site.get(path)
        assert reply.body == file.body, name
        assert reply.headers["content-type"] == file.type
        assert reply.headers["etag"] == file.etag == f'"{hashlib.sha256(file.body).hexdigest()[:32]}"'
        for header, value in HEADERS.items():
            assert reply.headers[header] == value
        for version in (file.etag, f"W/{file.etag}", f'"x", {file.etag}', "*"):
            again = site.get(path, **{"if-none-match": version})
            assert (again.status, again.body, again.headers["etag"]) == (304, b"", file.etag)
        assert site.get(path, **{"if-none-match": '"other"'}).status == 200


def test_the_policy_lets_nothing_in() -> None:
    rules = dict(rule.strip().partition(" ")[::2] for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert {"script-src", "style-src", "connect-src", "frame-ancestors", "base-uri", "form-action"} <= set(rules)
    assert not re.search(r"unsafe|\*|https?:|data:|blob:", POLICY)


@pytest.mark.parametrize("path", OURS, ids=names(OURS))
def test_our_files_keep_the_rules(path) -> None:
    text = path.read_text(encoding="utf-8")
    without = re.sub(r"http://www\.w3\.org/[\w/]+", "", text)
    for foreign in re.findall(r"https?://[\w.${}-]+", without):
        assert "host.docker.internal" in foreign, foreign  # in words for people; the page asks nobody but its server
    if path.suffix == ".html":
        assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", text)
    if path.suffix == ".js":
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
        assert "DOMPurify" not in text or path.name in {"markdown.js", "about.js"}
        for target in IMPORT.findall(text):
            assert (path.parent / target).is_file(), target
    if path.suffix == ".css" and path.name != "tokens.css":
        assert not re.search(r"#[0-9a-fA-F]{3,8}\b(?!\w)|\brgba?\(|\bhsl", re.sub(r"light-dark\([^;]*", "", text))
    assert not re.search("[\U0001f300-\U0001faff\u2600-\u27bf]", text)  # no pictures of a font that not all have


def test_every_icon_that_is_asked_for_is_there() -> None:
    known = set(re.findall(r'<symbol id="([\w-]+)"', (FOLDER / "icons.svg").read_text(encoding="utf-8")))
    asked = set()
    for path in OURS:
        text = path.read_text(encoding="utf-8")
        asked |= set(re.findall(r'\b(?:icon|iconButton)\("([\w-]+)"', text)) | set(
            re.findall(r"icons\.svg#([\w-]+)", text)
        )
    assert asked <= known
    assert len(asked) > 10


def test_what_the_page_needs_at_once_is_named_in_its_head() -> None:
    index = (FOLDER / "index.html").read_text(encoding="utf-8")
    preloaded = re.findall(r'<link rel="modulepreload" href="static/([^"]+)">', index)
    needed, waiting = set(), [FOLDER / "app.js", FOLDER / "tabs" / "chat.js"]
    while waiting:
        path = waiting.pop()
        name = path.relative_to(FOLDER).as_posix()
        if name not in needed:
            needed.add(name)
            static = re.findall(
                r"""^\s*(?:import|export)\b[^"'();]*["'](\.{1,2}/[^"']+)["']""",
                path.read_text(encoding="utf-8"),
                re.MULTILINE,
            )
            waiting += [(path.parent / target).resolve() for target in static]
    assert sorted(preloaded) == sorted(needed - {"app.js"})


def test_all_files_are_in_the_package() -> None:
    """What git does not ignore is in the wheel, which hatchling makes from the folder."""
    root = FOLDER.parents[3]
    if not (root / ".git").exists():
        pytest.skip("no checkout")
    asked = "\n".join(str(path) for path in FOLDER.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    done = subprocess.run(
        ["git", "check-ignore", "--stdin"], cwd=root, input=asked, capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
