"""What About says, and that the lines it gives to clients work."""

import subprocess
import sys
import tomllib

import pytest


@pytest.mark.parametrize("keys", [{}, {"me": "k3y"}], ids=["open", "keyed"])
def test_the_lines_for_clients_work(site, other_site, visit, keys) -> None:
    site.say("</think>\n\n1, 2, 3, 4, 5")
    me = visit(other_site(keys=keys))
    if keys:
        me.allow("status of 401")
        me.page.get_by_role("dialog").get_by_label("Key", exact=True).fill("k3y")
        me.page.keyboard.press("Enter")
    me.page.get_by_role("link", name="About").click()
    me.page.get_by_role("heading", name="scripted").wait_for()

    def lines(client: str, number: int = 0) -> str:
        me.page.get_by_role("tab", name=client).click()
        text = me.page.locator(".tabpanel:visible code").nth(number).inner_text()
        assert "k3y" not in text
        assert ("YOUR_KEY" in text) == (bool(keys) and client != "Codex")
        return text.replace("YOUR_KEY", "k3y")

    curl = subprocess.run(["bash", "-c", lines("curl")], capture_output=True, text=True, timeout=60, check=True)
    assert "1, 2, 3, 4, 5" in curl.stdout
    both = lines("Python, openai") + "\nclient.close()\n" + lines("Python, anthropic") + "\nclient.close()\n"
    if keys:  # once is enough: they take seconds to be imported
        done = subprocess.run([sys.executable, "-c", both], capture_output=True, text=True, timeout=120, check=True)
        assert done.stdout.split("\n")[:2] == ["1, 2, 3, 4, 5"] * 2
    codex = tomllib.loads(lines("Codex"))
    assert codex["model_providers"]["strata"]["base_url"] == f"{me.url}/v1"
    assert ("env_key" in codex["model_providers"]["strata"]) == bool(keys)
    for line in (f"ANTHROPIC_BASE_URL={me.url}\n", "ANTHROPIC_MODEL=scripted"):
        assert line in lines("Claude Code")
    assert f"Base URL        {me.url}/v1" in lines("Cline")
    assert f"OPENAI_API_BASE_URL={me.url}/v1" in lines("Open WebUI")


def test_it_says_what_the_server_is(visit) -> None:
    me = visit(tab="about")
    me.page.get_by_text("A scripted engine: it answers from a file").wait_for()
    assert "32,768 tokens" in me.page.locator(".facts").inner_text()
    links = me.page.locator(".view-about a").evaluate_all("all => all.map((one) => one.href)")
    assert len(links) == 3
    for link in links:  # licences
        assert me.page.request.get(link).status == 200
    words = """(props) => import("/static/about/facts.js").then(({ about }) => about(props, { ready: true }))"""
    known = {
        "n_ctx": 9,
        "n_vocab": 9,
        "total_slots": 1,
        "queue": 2,
        "kv": "q8_0",
        "device": "cuda:1",
        "fingerprint": "f",
    }
    told = me.page.evaluate(
        words, {**known, "placed": "cuda:1 (Card): 5 GB of weights", "why": "", "plan": ["Hot ones."]}
    )
    assert told["lead"].startswith("It runs on the server's GPU 1.")
    asleep = me.page.evaluate(words, {"state": "asleep", "model_path": "/x/y.gguf"})
    assert asleep["lead"] == "It is not in memory; the first message to it loads it."
    assert asleep["facts"][0][:2] == ["File", "y.gguf"]
    assert told["memory"] == ["Hot ones.", "Cuda:1 (Card) holds 5 GB of weights."]
