"""What a request says nothing about: from it, its model's table, the server, the model's file, in this order."""

import pytest

from strata.cli.fleet import check, said
from strata.config import resolve
from strata.errors import ConfigError
from strata.server.dialects.openai.chat import read_chat
from strata.server.options import SAID, Options
from strata.server.rendering import turns
from support.several import say, several, until
from support.site import turn

CONFIG = """
temperature = 0.5
top_k = 7
max_tokens = 30
[[model]]
name = "cool"
file = "pebble"
temperature = 0.0
thinking = false
max_tokens = 3
seed = 11
drafts = 0
[[model]]
name = "warm"
file = "pebble"
temperature = 1.5
top_p = 0.9
effort = "low"
"""


@pytest.fixture
def read(tmp_path):
    """What a config file, flags and the environment make of the server's options and of each model's own."""

    def reading(text: str = CONFIG, flags=None, environment=None):
        path = tmp_path / "c.toml"
        path.write_text(text, encoding="utf-8")
        resolved = resolve(flags, config=path, environment={"XDG_CONFIG_HOME": "/nowhere", **(environment or {})})
        own = {one.table.name: said(one.settings, seeded="seed" in one.origins) for one in resolved.models}
        check(resolved.settings, resolved.models)
        return said(resolved.settings, seeded=resolved.origins["seed"].source != "default"), own

    return reading


@pytest.fixture
def site(tmp_path, read):
    server, own = read()
    for name in own:
        say(tmp_path, name, turn("a b c d e f", size=1))
    one = several(
        tmp_path, *own, models={name: {"said": values, "early": True} for name, values in own.items()}, options=server
    )
    until(lambda: set(one.states().values()) == {"loaded"})
    yield one
    one.close()


def submitted(site, name: str, **more):
    served = site.fleet.find(name)
    rules = site.desk.rules(served)
    ask, _ = read_chat({"messages": [{"role": "user", "content": "x"}], **more}, rules, "")
    (made,) = turns(served, ask, rules)
    return made.submit


def test_a_table_wins_over_the_file_and_a_request_over_both(site) -> None:
    cool, warm = submitted(site, "cool"), submitted(site, "warm")
    assert (cool.sampling["temperature"], warm.sampling["temperature"]) == (0.0, 1.5)
    assert (cool.sampling["top_k"], warm.sampling["top_k"]) == (7, 7)
    assert "top_p" not in cool.sampling
    assert warm.sampling["top_p"] == 0.9
    assert (cool.max_tokens, warm.max_tokens) == (3, 30)
    assert cool.sampling["seed"] == 11
    assert submitted(site, "warm").sampling["seed"] != warm.sampling["seed"], "nobody has set one"
    assert (cool.drafting["depth"], warm.drafting["depth"]) == (0, 7)
    own = submitted(site, "cool", temperature=0.25, seed=5, max_tokens=9)
    assert (own.sampling["temperature"], own.sampling["seed"], own.max_tokens) == (0.25, 5, 9)
    assert submitted(site, "cool", temperature=None).sampling["temperature"] == 0.0, "null is not given"


def test_answers_prompts_and_properties_follow(site) -> None:
    assert site.chat(model="cool", max_tokens=...).json["usage"]["completion_tokens"] == 3
    assert site.chat(model="warm", max_tokens=...).json["usage"]["completion_tokens"] == 12  # with the end of its turn
    messages = [{"role": "user", "content": "x"}]
    cool, warm = (site.prompt(model=name, messages=messages) for name in ("cool", "warm"))
    assert cool.endswith("</think>\n\n"), "it does not think unless it is asked to"
    assert warm == site.prompt(model="cool", messages=messages, reasoning_effort="low")
    for name, temperature in (("cool", 0.0), ("warm", 1.5)):
        told = site.get(f"/props?model={name}").json
        assert told["default_generation_settings"]["params"]["temperature"] == temperature
    assert site.get("/props?model=cool").json["drafts"]["most"] == 0


def test_environment_and_flags_win_over_every_table(read) -> None:
    server, own = read(flags={"temperature": 0.1}, environment={"STRATA_TOP_P": "0.4", "STRATA_THINKING": "true"})
    for values in (server, *own.values()):
        assert values["sampling"]["temperature"] == 0.1
        assert values["sampling"]["top_p"] == 0.4
        assert values["thinking"] is True


def test_an_effort_that_is_none_is_refused_at_the_start(read) -> None:
    with pytest.raises(ConfigError, match="wild"):
        read('[[model]]\nfile = "pebble"\neffort = "wild"')


def test_all_that_is_said_is_an_option(read) -> None:
    server, _ = read()
    assert set(server) == set(SAID)
    assert Options().of(server).sampling == server["sampling"]
