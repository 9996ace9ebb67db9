"""Who may use the server: cases S01 to S09."""

import json

import pytest

from strata.errors import ConfigError
from strata.server.access import OPEN
from strata.server.options import Options, read_hosts, read_keys, read_origins
from strata.server.routes import ROUTES
from strata.server.web.files import read_files
from strata.server.web.routes import Page
from support.site import chat_body

PATHS = [
    (
        route.method,
        path.replace("{name:path}", "scripted").replace("{name}", "resp_x").replace("/events", "/events?snapshots=1"),
    )
    for route in ROUTES
    for path in (route.path, *route.aliases)
]


@pytest.fixture
def locked(other_site):
    return other_site(keys={"one": "k", "two": "schlüssel"})


def test_s01_every_route_needs_the_key(locked) -> None:
    bad = (
        {},
        {"authorization": "Bearer wrong"},
        {"x-api-key": "wrong"},
        {"authorization": "Basic k"},
        {"authorization": "k"},
        {"authorization": "Bearer "},
    )
    good = ({"authorization": "Bearer k"}, {"x-api-key": "k"}, {"authorization": "bearer  k"})
    assert len(PATHS) > 15
    for path in sorted({path for _, path in PATHS} | {"/v1/nothing", "/static/x"}):
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            for headers in bad:
                for query in ("", "?api_key=k", "?key=k"):
                    if headers and query:
                        continue
                    status = locked.request(method, path + query, None, headers).status
                    assert status == 401 or path in OPEN, (method, path, headers)  # the page's files: below
        for headers in good:
            assert locked.get(path, **headers).status != 401
    assert locked.get("/health").status == 200


def test_s01_the_page_needs_no_key_and_holds_nothing(locked) -> None:
    paths = Page().paths
    assert {"/", "/static/app.js"} < paths
    for path in paths:
        assert locked.get(path).status == 200, path
        assert locked.request("HEAD", path).status == 200, path
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert locked.request(method, path).status == 401, (method, path)
    assert locked.get("/static/app.js", host="box.example").status == 200
    assert b"scripted" not in locked.get("/").body  # not even the model's name


def test_s09_the_same_answer_on_all_routes(locked) -> None:
    for path in (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/messages",
        "/v1/responses",
        "/v1/messages/count_tokens",
        "/v1/embeddings",
    ):
        for headers, wanted in (
            ({"authorization": "Bearer k"}, 400),
            ({"x-api-key": "k"}, 400),
            ({"x-api-key": "wrong", "authorization": "Bearer k"}, 400),
            ({"authorization": "BEARER k"}, 400),
            ({"authorization": "Bearer k k"}, 401),
            ({"x-api-key": ""}, 401),
            ({}, 401),
        ):
            reply = locked.post(path, raw=b"[]", **headers)
            assert reply.status == wanted, (path, headers)
            assert ("www-authenticate" in reply.headers) == (wanted == 401)
            if path.startswith("/v1/messages") and wanted == 401:
                assert reply.json["error"]["type"] == "authentication_error"
    for form in ("utf-8", "latin-1"):  # as curl sends it, and as a browser does
        raw = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-api-key: " + "schlüssel".encode(form)
        assert locked.raw(raw + b"\r\n\r\n").startswith(b"HTTP/1.1 200"), form


def test_s09_an_empty_key_is_refused_at_the_start() -> None:
    for text in ("", " ", "name=", "a,b=,c", "# only a comment"):
        with pytest.raises(ConfigError, match="key"):
            read_keys(text)
    with pytest.raises(ConfigError, match="empty"):
        Options(keys={"x": " "})
    assert read_keys("a=1\n# note\nb = 2\n\n3") == {"a": "1", "b": "2", "key 5": "3"}
    with pytest.raises(ConfigError, match="two keys"):
        read_keys("a=1,a=2")


def test_a_key_is_never_shown() -> None:
    assert "secret" not in repr(Options(keys={"x": "secret"}))


def test_s09_a_key_in_base64_is_itself_or_refused() -> None:
    for text in ("c2VjcmV0LXNlY3JldA==", "c2VjcmV0LXNlY3JldDE=", "=", "==", "a=b,c2VjcmV0="):
        with pytest.raises(ConfigError, match="NAME=KEY") as caught:
            read_keys(text)
        assert "c2Vj" not in str(caught.value)
    assert read_keys("main=c2VjcmV0LXNlY3JldA==") == {"main": "c2VjcmV0LXNlY3JldA=="}
    for text in ("se/cr+et", "ab+/cd=="):
        assert read_keys(text) == {"key 1": text}
    assert read_keys("one,with=comma, and more\n# x\ntwo", lines=True) == {
        "key 1": "one,with=comma, and more", "key 3": "two",
    }  # fmt: skip


def test_s02_only_names_of_ours(site, other_site) -> None:
    def get(host: str | None, version: str = "1.1", path: str = "/v1/models") -> int:
        lines = [f"GET {path} HTTP/{version}", *([] if host is None else [f"Host: {host}"]), "Connection: close"]
        return int(site.raw(("\r\n".join(lines) + "\r\n\r\n").encode()).split()[1])

    for good in ("localhost", "127.0.0.1", "127.0.0.1:1234", "[::1]", "[::1]:80", "LOCALHOST.", "localhost:8080"):
        assert get(good) == 200, good
    for foreign in (
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "192.168.1.5",
        "a@localhost.evil",
        "",
    ):
        assert get(foreign) in {400, 403}, foreign
    assert get("evil.example", path="/health") == 403
    assert get(None, "1.0") == 200
    two = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    assert site.raw(two).split()[1] == b"400"
    assert site.post("/v1/chat/completions", chat_body(), host="evil.example").status == 403
    named = other_site(hosts=("box.example",))
    assert named.get("/v1/models", host="box.example:80").status == 200
    assert named.get("/v1/models", host="other.example").status == 403
    keyed = other_site(keys={"a": "k"})
    assert keyed.get("/v1/models", host="box.example", **{"x-api-key": "k"}).status == 200


def test_a_page_of_another_site_cannot_drive_it(site) -> None:
    for origin in ("https://a.example", "null", "http://localhost:1", "file://"):
        reply = site.post("/v1/chat/completions", chat_body(), origin=origin)
        assert reply.status == 403
        assert "access-control-allow-origin" not in reply.headers
    own = f"http://{site.host}:{site.port}"
    assert site.post("/v1/chat/completions", chat_body(), origin=own).status == 200
    assert site.post("/v1/chat/completions", chat_body(), **{"sec-fetch-site": "cross-site"}).status == 403
    assert site.get("/", **{"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}).status == 200


def test_s07_cors_is_off_unless_an_origin_is_named(site, other_site) -> None:
    ask = {"origin": "https://a.example", "access-control-request-method": "POST"}
    refused = site.request("OPTIONS", "/v1/chat/completions", None, ask)
    assert "access-control-allow-origin" not in refused.headers
    open_to_one = other_site(origins=("https://a.example",))
    allowed = open_to_one.request("OPTIONS", "/v1/chat/completions", None, ask)
    assert allowed.status == 204
    assert allowed.headers["access-control-allow-origin"] == "https://a.example"
    assert allowed.headers["vary"] == "Origin"
    answered = open_to_one.post("/v1/chat/completions", chat_body(), origin="https://a.example")
    assert answered.status == 200
    assert answered.headers["access-control-allow-origin"] == "https://a.example"
    other = open_to_one.request("OPTIONS", "/v1/chat/completions", None, {**ask, "origin": "https://b.example"})
    assert "access-control-allow-origin" not in other.headers
    with pytest.raises(ConfigError, match="any web page"):
        Options(origins=("*",))
    keyed = other_site(keys={"a": "k"}, origins=("*",))
    assert (
        keyed.request("OPTIONS", "/v1/messages", None, ask).headers["access-control-allow-origin"]
        == "https://a.example"
    )
    assert keyed.post("/v1/messages", {}, origin="https://b.example").status == 401


def test_s07_a_page_that_may_is_told_everything(other_site) -> None:
    keyed = other_site(keys={"a": "k"}, origins=("https://a.example",))
    names = "authorization,content-type,x-stainless-lang,anthropic-dangerous-direct-browser-access"
    asked = {"origin": "https://a.example", "access-control-request-method": "POST",
             "access-control-request-headers": f"{names},b a d"}  # fmt: skip
    allowed = keyed.request("OPTIONS", "/v1/messages", None, asked).headers["access-control-allow-headers"]
    assert allowed.replace(" ", "") == names
    refused = keyed.get("/v1/models", origin="https://a.example")
    assert (refused.status, refused.headers["access-control-allow-origin"]) == (401, "https://a.example")
    good = keyed.get("/v1/models", origin="https://a.example", **{"x-api-key": "k"})
    assert "x-request-id" in good.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in keyed.get("/v1/models", origin="https://b.example").headers


def test_q01_names_and_origins_are_brought_to_one_form_or_refused() -> None:
    assert read_origins("https://a.example/, HTTPS://B.Example:8443,*") == (
        "https://a.example", "https://b.example:8443", "*",
    )  # fmt: skip
    assert read_hosts("B.Example., box_1,[::1]") == ("b.example", "box_1", "::1")
    assert read_origins(None) == read_hosts("") == ()
    for text in ("a.example", "https://a.example/x", "https://u@a.example", "https://"):
        with pytest.raises(ConfigError, match="allow_origin"):
            read_origins(text)
    for text in ("b.example:8080", "http://b.example", "a b"):
        with pytest.raises(ConfigError, match="allow_host"):
            read_hosts(text)


def test_s04_nothing_but_routes_is_served(site) -> None:
    for path in (
        "/static/..%2Fconfig.json",
        "/static/%2e%2e/x",
        "/static/....//x",
        "/static/a/..%2F..%2Fmain.py",
        "/..%5c..%5cx",
        "//etc/passwd",
        "/static/%00",
        "/v1/models/../../etc/passwd",
        "/v1/models/..%2f..%2fetc%2fpasswd",
    ):
        assert site.get(path).status in {400, 404}, path


def test_s04_only_listed_files_are_served(site) -> None:
    assert site.get("/static/app.js").status == 200
    assert site.get("/static/css/tokens.css").status == 200
    for path in (
        "/static",
        "/static/css",
        "/static/index.html",
        "/static/routes.py",
        "/static/__init__.py",
        "/static/vendor/SHA256SUMS",
        "/static/./app.js",
        "/static//app.js",
        "/static/css/../app.js",
        "/static/css/%2e%2e/app.js",
        "/static/css%2f..%2fapp.js",
        "/static/..%2frouting.py",
        "/static/%2e%2e/options.py",
        "/static/....//options.py",
        "/static/css%5c..%5capp.js",
        "/static/..\\options.py",
        "/static/app.js%00",
        "/static/%00",
        "/static/APP.JS",
        "/app.js",
    ):
        reply = site.get(path)
        assert reply.status == 404, path
        assert b"import" not in reply.body
    raw = b"GET /static/../options.py HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert site.raw(raw).split()[1] == b"404"


def test_s04_a_link_in_the_folder_is_no_file(tmp_path) -> None:
    outside = tmp_path / "outside.js"
    outside.write_text("secret", encoding="utf-8")
    folder = tmp_path / "web"
    (folder / "css").mkdir(parents=True)
    (folder / "app.js").write_text("app", encoding="utf-8")
    (folder / "link.js").symlink_to(outside)
    (folder / "linked").symlink_to(tmp_path)
    (folder / "css" / ".hidden.css").write_text("secret", encoding="utf-8")
    (folder / "notes.md").write_text("secret", encoding="utf-8")
    assert set(read_files(folder)) == {"app.js"}


def test_s05_nothing_is_fetched_for_a_client(site) -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as spy:
        spy.settimeout(0.1)
        port = spy.getsockname()[1]
        for url in (
            "file:///etc/passwd",
            "/etc/hostname.png",
            f"http://127.0.0.1:{port}/a.png",
            "http://169.254.169.254/x",
            "data:image/png;base64,AAAA",
        ):
            part = {"type": "image_url", "image_url": {"url": url}}
            reply = site.chat([{"role": "user", "content": [part]}])
            assert reply.status == 400
            source = {"type": "url", "url": url}
            assert site.message([{"role": "user", "content": [{"type": "image", "source": source}]}]).status == 400
            assert site.message([{"role": "user", "content": [{"type": "document", "source": source}]}]).status == 400
            assert site.response([{"role": "user", "content": [{"type": "input_file", "file_url": url}]}]).status == 400
            assert "root:" not in reply.body.decode()
        with pytest.raises(TimeoutError):
            spy.accept()


def test_answers_say_what_they_are(site) -> None:
    reply = site.chat()
    assert reply.headers["server"] == "strata"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["x-request-id"] == reply.headers["request-id"]
    told = site.post("/v1/messages", {})
    assert json.loads(told.body)["request_id"] == told.headers["request-id"]
