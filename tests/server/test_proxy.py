"""Case B15 with a real proxy: nginx as it is installed, with buffering and compression on, before a live server."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import time
import zlib
from itertools import pairwise

import pytest

from support.site import chat_body, message_body, turn

NGINX = shutil.which("nginx") or "/usr/sbin/nginx"

CONFIGURATION = """
daemon off;
master_process off;
pid {folder}/pid;
error_log {folder}/errors;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    gzip on;
    gzip_min_length 0;
    gzip_proxied any;
    {types}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{behind};
            proxy_read_timeout 2s;
            {more}
        }}
    }}
}}
"""

pytestmark = pytest.mark.skipif(
    shutil.which(NGINX) is None and os.environ.get("PROXY_TESTS") != "required", reason="nginx is not installed"
)


@pytest.fixture
def proxy(tmp_path):
    """Starts nginx before a server; gives its port."""
    made: list[subprocess.Popen] = []

    def start(behind: int, more: str = "", types: str = "") -> int:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        file = tmp_path / "nginx.conf"
        file.write_text(
            CONFIGURATION.format(folder=tmp_path, port=port, behind=behind, more=more, types=types), encoding="utf-8"
        )
        made.append(subprocess.Popen([NGINX, "-p", str(tmp_path), "-c", str(file)], stderr=subprocess.DEVNULL))
        end = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except OSError:
                assert time.monotonic() < end, (tmp_path / "errors").read_text(encoding="utf-8")
                assert made[-1].poll() is None, (tmp_path / "errors").read_text(encoding="utf-8")
                time.sleep(0.02)
            else:
                return port

    yield start
    for process in made:
        process.terminate()
        process.wait(20)


def arrivals(port: int, path: str, body: dict) -> tuple[dict[str, str], list[tuple[float, bytes]]]:
    """Headers, and each piece with its time, as a client behind the proxy sees them."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        data = json.dumps({**body, "stream": True})
        headers = {"content-type": "application/json", "accept-encoding": "gzip, deflate, br"}
        connection.request("POST", path, data, headers)
        response = connection.getresponse()
        assert response.status == 200
        found = {name.lower(): value for name, value in response.getheaders()}
        unpack = zlib.decompressobj(31).decompress if found.get("content-encoding") == "gzip" else bytes
        pieces = []
        while part := response.read1(1 << 16):
            if shown := unpack(part):
                pieces.append((time.monotonic(), shown))
        return found, pieces
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("path", "body", "types"),
    [
        ("/v1/chat/completions", chat_body("w " * 3000), ""),
        ("/v1/messages", message_body("w " * 3000), "gzip_types *;"),
    ],
    ids=["chat", "messages, all packed"],
)
def test_b15_a_stream_passes_a_default_proxy_in_pieces(other_site, proxy, path, body, types) -> None:
    site = other_site(sign=0.3)
    # Reading takes longer than the proxy waits for a word; then 40 tokens take 1.6 seconds.
    site.say(turn("</think>\n\n" + "x" * 40, size=1, delay_ms=40), reading_ms=55)
    headers, pieces = arrivals(proxy(site.port, types=types), path, body)
    assert ("content-encoding" in headers) == bool(types)  # what nginx is told to pack it packs, whatever we say
    assert headers["cache-control"] == "no-cache, no-transform"
    text = b"".join(part for _, part in pieces)
    assert text.rstrip().endswith(b"[DONE]" if path.endswith("completions") else b'{"type":"message_stop"}')
    spoken = [when for when, part in pieces if b'"x"' in part]
    assert len(spoken) >= 10, "the tokens came in lumps"
    assert spoken[-1] - spoken[0] > 1
    assert spoken[0] - pieces[0][0] > 1.5, "nothing came while the prompt was read"
    waits = [later - earlier for (earlier, _), (later, _) in pairwise(pieces)]
    assert max(waits) < 2
    assert sum(part.startswith((b": ", b"event: ping")) for _, part in pieces) >= 3


def test_b15_what_the_header_is_for(site, proxy) -> None:
    """The same proxy, told to overlook it: all tokens come in one lump. So the test above can fail."""
    site.say(turn("</think>\n\n" + "x" * 20, size=1, delay_ms=50))
    port = proxy(site.port, "proxy_ignore_headers X-Accel-Buffering;")
    _, pieces = arrivals(port, "/v1/chat/completions", chat_body())
    spoken = [when for when, part in pieces if b'"x"' in part]
    assert spoken[-1] - spoken[0] < 0.5
