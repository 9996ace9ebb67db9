"""A chat template is somebody else's program: it ends in time, within its memory, and inside the sandbox."""

import gc
import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from strata.errors import TextError
from strata.text import ChatTemplate, Limits
from strata.text.chat.renderer import _end
from support.vocab import vocabulary_metadata

USER = {"role": "user", "content": "hi"}
GOOD = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"


def template(source: str, limits: Limits | None = None) -> ChatTemplate:
    metadata = vocabulary_metadata(chat_template=source)
    return ChatTemplate.from_metadata(metadata, limits=limits) if limits else ChatTemplate.from_metadata(metadata)


GROW = "{% set s = namespace(x=[]) %}{% for a in range(99) %}{% set s.x = [s.x, s.x] %}{% endfor %}"
ENDLESS = {
    "loops in loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "a huge range": "{% for a in range(10**9) %}x{% endfor %}",
    "output of loops": "{% for a in range(99999) %}{{ 'x' * 9999 }}{% endfor %}",
    "a billion characters": "{{ 'x' * 10**9 }}",
    "a billion items": "{{ ([0] * 10**9) | length }}",
    "doubling": "{% set s = namespace(x='x') %}{% for a in range(99) %}{% set s.x = s.x ~ s.x %}{% endfor %}",
    "doubling lists": "{% set s = namespace(x=[1]) %}{% for a in range(99) %}{% set s.x = s.x + s.x %}{% endfor %}",
    "shared nesting": GROW + "{{ s.x }}",
    "shared nesting as JSON": GROW + "{{ s.x | tojson }}",
    "padding": "{{ 'x' | center(10**10) }}",
    "a format": "{{ '%9999999999d' % 1 }}",
    "replacing": "{% set s = 'a' * 10**6 %}{{ s.replace('a', s) }}",
    "a power": "{{ (9 ** (9 ** 9)) % 7 }}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "batches": "{{ range(99999) | batch(10**9, 'x') | list }}",
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_a_greedy_template_ends_with_an_error(name: str) -> None:
    limits = None if name == "loops in loops" else Limits(seconds=0.5)  # the default once, the rest faster
    start = time.monotonic()
    with pytest.raises(
        TextError, match=r"takes more than|needs more memory|writes more than|nests too deeply|OverflowError"
    ):
        template(ENDLESS[name], limits).render([USER])
    # At most 2 s of CPU time. The bound leaves room for a machine that gives this process a fifth of a core.
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("size", [10**9, 6 * 10**8])
def test_memory_is_refused_before_it_is_taken(size: int) -> None:
    greedy = template("{{ ('x' * " + str(size) + ") | length }}")
    with pytest.raises(TextError, match="needs more memory"):
        greedy.render([USER])
    small = template("{{ ('x' * 10**8) | length }}")
    assert small.render([USER]).text == "100000000"


def test_the_next_rendering_after_a_limit_works() -> None:
    picky = template(
        "{% if messages[0].content == 'spin' %}" + ENDLESS["loops in loops"] + "{% endif %}" + GOOD, Limits(seconds=0.5)
    )
    with pytest.raises(TextError, match=r"takes more than 0\.5 s"):
        picky.render([{"role": "user", "content": "spin"}])
    assert picky.render([USER]).text == "<|im_start|>hi<|im_end|>"
    picky.close()
    assert picky.render([USER]).text == "<|im_start|>hi<|im_end|>"
    picky.close()


def test_limits_are_the_caller_s() -> None:
    short = template(GOOD, Limits(characters=1000))
    assert short.render([USER]).text
    with pytest.raises(TextError, match="more than 1,000 characters"):
        short.render([{"role": "user", "content": "x" * 1001}])
    short.close()


ESCAPES = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.__class__.__init__.__globals__ }}",
    "{{ raise_exception.__globals__['json'] }}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "{{ (messages|attr('__class__')).__mro__ }}",
    "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ self.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__.x }}",
    "{% for k in messages[0] %}{{ k.__class__.__base__ }}{% endfor %}",
    "{{ messages.append(1) }}",
    "{{ messages[0].update({'content': 'changed'}) }}",
    "{% set f = ''.__class__ %}{{ f() }}",
    "{% include 'pebble.jinja' %}",
    "{% import 'os' as os %}{{ os }}",
    "{{ x() }}",
    "{{ messages | nosuchfilter }}",
    "{{ [1, 2, 3] | random }}",  # the same messages give the same prompt
    "{{ lipsum() }}",
]


@pytest.mark.parametrize("source", ESCAPES)
def test_a_template_cannot_reach_out_of_the_sandbox_or_use_what_is_not_there(source: str) -> None:
    with pytest.raises(TextError, match="The chat template failed"):
        template(source).render([USER])


def test_what_templates_of_the_wild_use_is_there() -> None:
    source = (
        "{%- for m in messages %}\n  {%- if loop.first %}{% continue %}{% endif %}\n"
        "  {{- m.content | tojson }}{% break %}\n{%- endfor %}"
        "|{{ {'b': '<é&\\''} | tojson }}|{{ [1, {'a': none}] | tojson(indent=1) }}"
        "|{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}"
        "|{{ strftime_now('%Y') | length }}|{{ 'a b'.split(' ')[-1] }}|{{ ns is defined }}"
    )
    made = template(source)
    text = made.render([USER, {"role": "user", "content": "<ñ>\n"}, USER]).text
    assert text == '"<ñ>\\n"|{"b": "<é&\'"}|[\n 1,\n {\n  "a": null\n }\n]|{"a":2,"b":1}|4|b|False'
    made.close()


def test_blocks_are_trimmed_as_templates_expect() -> None:
    made = template("a\n    {% if true %}\nb\n    {% endif %}\nc\n")
    assert made.render([USER]).text == "a\nb\nc"
    made.close()


def test_many_threads_share_a_template() -> None:
    made = template(GOOD)
    with ThreadPoolExecutor(8) as pool:
        texts = list(pool.map(lambda n: made.render([{"role": "user", "content": str(n)}]).text, range(200)))
    assert texts == [f"<|im_start|>{n}<|im_end|>" for n in range(200)]
    made.close()


def _render_in_fork(made: ChatTemplate, queue: "multiprocessing.Queue[tuple[str, int]]") -> None:
    text = made.render([{"role": "user", "content": "child"}]).text
    queue.put((text, made._renderer._process.pid))
    made.close()


def test_a_fork_uses_a_process_of_its_own() -> None:
    made = template(GOOD)
    made.render([USER])
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_render_in_fork, args=(made, queue))
    with made._renderer._lock:  # as if another thread were rendering at that moment
        child.start()
    text, number = queue.get(timeout=60)
    assert text == "<|im_start|>child<|im_end|>"
    assert number != made._renderer._process.pid
    child.join()
    assert child.exitcode == 0
    assert made.render([USER]).text == "<|im_start|>hi<|im_end|>"  # the parent's own process is still there
    made.close()


def test_a_fork_leaves_the_process_of_its_parent_alone() -> None:
    made = template(GOOD)
    process = made._renderer._process
    _end(process, owner=os.getpid() + 1)  # what the fork's own exit calls
    assert process.poll() is None
    _end(process, owner=os.getpid())
    assert process.poll() is not None


def test_the_process_ends_with_its_template() -> None:
    made = template(GOOD)
    number = made._renderer._process.pid
    del made
    gc.collect()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)


def test_a_conversation_of_a_long_context_is_well_within_the_limits() -> None:
    made = template(GOOD)
    messages = [{"role": "user", "content": "x" * 100}] * 20_000  # two million characters
    assert len(made.render(messages).text) == 20_000 * (100 + 22)
    made.close()


@pytest.mark.parametrize("key", ["bos_token_id", "padding_token_id"])
@pytest.mark.parametrize("value", ["x", True, -1, 10**9], ids=str)
def test_a_token_the_template_may_use_must_be_one(key: str, value: object) -> None:
    metadata = vocabulary_metadata(chat_template=GOOD) | {f"tokenizer.ggml.{key}": value}
    with pytest.raises(TextError, match=f"tokenizer.ggml.{key} is .*; expected a token id below"):
        ChatTemplate.from_metadata(metadata)
