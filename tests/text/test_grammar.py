"""What a grammar allows, against a judgement of whole texts by Python's own json and re."""

import json
import re

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from strata.engine import Chooser, Sampling
from strata.errors import RequestError
from strata.text import OutputParser, Tokenizer
from strata.text.grammar import Grammar, GrammarError, Grammars, Kind, check_grammar
from support.vocab import vocabulary_metadata
from support.windows import decode, drafter

TOKENIZER = Tokenizer.from_metadata(vocabulary_metadata())
V = TOKENIZER.size + 3  # rows of the head beyond the tokenizer
BANNED = sorted(TOKENIZER.unused_ids | set(range(TOKENIZER.size, V)))
STOPS = list(TOKENIZER.eos_ids)
GRAMMARS = Grammars(TOKENIZER, V)
THOUGHT = TOKENIZER.id_of("</think>")
SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Rome", "Größe", "🙂"]},
        "days": {"type": "integer", "minimum": -5, "maximum": 120},
        "tags": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
        "note": {"type": ["string", "null"], "maxLength": 4},
    },
    "required": ["city", "days", "tags"],
    "additionalProperties": False,
}


def grammar(value):
    made = Grammar.of(value)
    assert made is not None
    return made


JSON_SCHEMA = grammar({"type": "json_schema", "json_schema": {"name": "weather", "strict": True, "schema": SCHEMA}})
REGEX = grammar({"type": "regex", "regex": r"[a-f]{2,5}(é|🙂)?"})
LARK = grammar({"type": "lark", "lark": 'start: "x" (NUMBER ";")+\nNUMBER: /[0-9]{1,3}/'})
GBNF = grammar({"type": "gbnf", "gbnf": 'root ::= "yes" | "no" [0-9]{1,3}'})
FORMS = {"json_schema": JSON_SCHEMA, "regex": REGEX, "lark": LARK, "gbnf": GBNF}


def fits(kind, text):
    if kind == "regex":
        return re.fullmatch(r"[a-f]{2,5}(é|🙂)?", text) is not None
    if kind == "lark":
        return re.fullmatch(r"x([0-9]{1,3};)+", text) is not None
    if kind == "gbnf":
        return re.fullmatch(r"yes|no[0-9]{1,3}", text) is not None
    value = json.loads(text)
    return (
        isinstance(value, dict)
        and {"city", "days", "tags"} <= set(value) <= set(SCHEMA["properties"])
        and value["city"] in {"Rome", "Größe", "🙂"}
        and type(value["days"]) is int
        and -5 <= value["days"] <= 120
        and 1 <= len(value["tags"]) <= 3
        and all(type(tag) is bool for tag in value["tags"])
        and (value.get("note") is None or len(value["note"]) <= 4)
    )


def taking(made, text, **more):
    constraint = GRAMMARS.constraint(made, **more)
    for token in TOKENIZER.encode(text, special=True):
        assert constraint.allowed()[token], (text, TOKENIZER.token_bytes(token))
        constraint.advance(token)
    return constraint


def ends(constraint):
    return {bool(constraint.allowed()[token]) for token in STOPS}


@pytest.mark.parametrize(("kind", "text"), [
    ("json_schema", '{"city": "Größe", "days": -5, "tags": [true]}'),
    ("json_schema", '{\n  "city": "🙂",\n  "days": 120,\n  "tags": [false, true, true],\n  "note": null\n}'),
    ("json_schema", '{"city":"Rome","days":7,"tags":[true],"note":"\\n🙂ab"}'),
    ("regex", "abé"), ("regex", "ab"), ("regex", "abcde🙂"), ("lark", "x1;22;333;"), ("gbnf", "no12"), ("gbnf", "yes"),
])  # fmt: skip
def test_texts_that_fit_are_taken_and_end_where_they_are_complete(kind, text):
    assert fits(kind, text)
    constraint = GRAMMARS.constraint(FORMS[kind])
    read = b""
    for token in TOKENIZER.encode(text):
        complete = kind != "json_schema" and fits(kind, read.decode(errors="replace"))
        assert ends(constraint) == {complete}
        assert constraint.allowed()[token]
        constraint.advance(token)
        read += TOKENIZER.token_bytes(token)
    assert ends(constraint) == {True}


@pytest.mark.parametrize(("kind", "text"), [
    ("json_schema", '{"city": "Paris", "days": 1, "tags": [true]}'),
    ("json_schema", '{"city": "Rome", "days": 121, "tags": [true]}'),
    ("json_schema", '{"city": "Rome", "days": 1.5, "tags": [true]}'),
    ("json_schema", '{"city": "Rome", "days": 1, "tags": []}'),
    ("json_schema", '{"city": "Rome", "days": 1, "tags": [true]} and'),
    ("json_schema", '{"city": "Rome", "days": 1, "tags": [true], "x": 1}'),
    ("json_schema", "[1]"), ("regex", "abg"),
    ("regex", "abcdef"), ("lark", "x1"), ("lark", "x1234;"), ("gbnf", "maybe"),
])  # fmt: skip
def test_other_texts_are_not(kind, text):
    constraint = GRAMMARS.constraint(FORMS[kind])
    for token in TOKENIZER.encode(text):
        if not constraint.allowed()[token]:
            with pytest.raises(GrammarError, match=r"^the grammar cannot go on, so the answer ends here: .") as wrong:
                constraint.advance(token)
            assert "<" not in str(wrong.value), "neither the answer so far nor the schema"
            with pytest.raises(GrammarError):
                constraint.allowed()
            return
        constraint.advance(token)
    assert ends(constraint) == {False}


def test_any_json_object():
    made = grammar({"type": "json_object"})
    for text in ("{}", '{"a": [1, {"b": null}], "c": "\\n\\"é"}', '{ "a" : -1.5e3 }'):
        assert json.loads(text) is not None
        assert ends(taking(made, text)) == {True}
    for text in ("1", "[]", '"a"'):
        assert not GRAMMARS.constraint(made).allowed()[TOKENIZER.encode(text)[0]]
    blank = TOKENIZER.encode(" ")[0]
    constraint = taking(made, "{")
    for _ in range(64):
        constraint.advance(blank)
    assert not constraint.allowed()[blank], "white space ends"


def test_neither_control_tokens_nor_padding_nor_tags_fit_a_text():
    special = [*TOKENIZER.control_ids, *TOKENIZER.user_defined_ids, *BANNED]
    constraint = taking(grammar({"type": "regex", "regex": "(?s:.*)"}), "anything <t")
    allowed = np.flatnonzero(constraint.allowed())
    assert set(special) & set(allowed.tolist()) == set(STOPS)
    assert len(constraint.allowed()) == V
    named = taking(grammar({"type": "lark", "lark": 'start: <tool_call> "a"'}), "<tool_call>a")
    assert ends(named) == {True}


@pytest.mark.parametrize("kind", FORMS)
def test_a_complete_text_that_nothing_can_follow_is_finished(kind):
    text = {"json_schema": '{"city":"Rome","days":7,"tags":[true]}', "regex": "abcdeé", "gbnf": "yes"}.get(kind)
    assert not GRAMMARS.constraint(FORMS[kind]).finished
    if text is None:
        assert not taking(LARK, "x1;").finished  # more may follow
        return
    constraint = taking(FORMS[kind], text)
    assert constraint.finished
    assert set(np.flatnonzero(constraint.allowed())) == set(STOPS)
    assert constraint.forced() == [] or set(constraint.forced()) <= set(STOPS)


def test_what_is_forced_is_what_the_tokenizer_would_write():
    constraint = taking(JSON_SCHEMA, '{"')
    constraint.advance(TOKENIZER.encode("city")[0])
    forced = constraint.forced()
    assert forced == TOKENIZER.encode("city")[1:]
    assert forced
    for token in forced:
        assert constraint.allowed()[token]
        constraint.advance(token)


def test_a_fork_goes_its_own_way():
    constraint = taking(JSON_SCHEMA, '{"city": "')
    before = constraint.allowed().copy()
    fork = constraint.fork()
    fork.advance(TOKENIZER.encode("Rome")[0])
    assert (constraint.allowed() == before).all()
    assert not (fork.allowed() == before).all()
    waiting = GRAMMARS.constraint(REGEX, after=THOUGHT)
    waiting.fork().advance(THOUGHT)
    assert waiting.allowed()[TOKENIZER.encode("z")[0]]


def test_behind_a_thinking_block_the_grammar_begins():
    constraint = GRAMMARS.constraint(REGEX, after=THOUGHT)
    for token in TOKENIZER.encode("Let me <think> about {[1] </thin k> abz.\n\n"):
        allowed = constraint.allowed()
        assert allowed[token]
        assert not constraint.finished
        assert not allowed[STOPS].any(), "an answer is still to come"
        assert constraint.forced() == []
        constraint.advance(token)
    constraint.advance(THOUGHT)
    for lead in ("", "\n", "\n\n"):
        assert ends(taking_on(constraint.fork(), lead + "ab")) == {True}
    assert not taking_on(constraint.fork(), "\n\n").allowed()[TOKENIZER.encode("\n")[0]]
    assert not constraint.allowed()[TOKENIZER.encode("z")[0]]
    for made in (*FORMS.values(), grammar({"type": "json_object"})):
        waiting = GRAMMARS.constraint(made, after=THOUGHT)
        waiting.advance(THOUGHT)
        assert not waiting.allowed()[TOKENIZER.encode("?")[0]]


def taking_on(constraint, text):
    for token in TOKENIZER.encode(text):
        assert constraint.allowed()[token]
        constraint.advance(token)
    return constraint


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(["<", "</", "/think", "</think", "</thi", "nk", ">", "<|fim_pad|>", "x>"]), max_size=12)
)
@example(["</think", ">"])
@example(["</thi", "<|fim_pad|>", "nk", "<|fim_pad|>", ">"])
def test_the_end_of_thinking_cannot_be_spelled(pieces):
    constraint = GRAMMARS.constraint(REGEX, after=THOUGHT)
    parser = OutputParser(thinking=True)
    text = TOKENIZER.detokeniser()
    for piece in pieces:
        for token in TOKENIZER.encode(piece, special=True):
            if token == THOUGHT:
                continue
            if constraint.allowed()[token]:
                constraint.advance(token)
                parser.push(text.push(token))
    deltas = parser.finish()
    assert parser.reasoning_open, deltas


@pytest.mark.parametrize(("value", "wrong"), [
    ({"type": "regex", "regex": "a("}, r"the grammar \(regex\) cannot be used: at 1\(8\): invalid regex"),
    ({"type": "lark", "lark": "start: foo"}, r"the grammar \(lark\) cannot be used: at 1\(8\): unknown name: \"foo\""),
    ({"type": "lark", "lark": "begin: /a/"}, r"the grammar \(lark\) cannot be used: .*start"),
    ({"type": "gbnf", "gbnf": 'root ::= "a'}, r"the grammar \(gbnf\) cannot be read: .*line 1"),
    ({"type": "gbnf", "gbnf": "root ::= other"}, r"the grammar \(gbnf\) cannot be read: Rule 'other' not found"),
    ({"type": "json_schema", "json_schema": {"schema": {"type": "objekt"}}}, r"the grammar \(json_schema\) .*objekt"),
    ({"type": "json_schema", "json_schema": {"schema": {"not": {}}}}, r"the grammar \(json_schema\) .*not"),
    ({"type": "json_schema", "json_schema": {"schema": {"$ref": "#/x"}}}, r"the grammar \(json_schema\) .*'/x'"),
], ids=str)  # fmt: skip
@pytest.mark.parametrize("after", [None, THOUGHT], ids=["at-once", "after-thinking"])
def test_a_wrong_grammar_is_refused_with_the_place(value, wrong, after):
    with pytest.raises(RequestError, match=f"^{wrong}"):
        GRAMMARS.constraint(grammar(value), after=after)


@pytest.mark.parametrize("source", ["", "{", '{"type": "object"}}', "\x00", '{"a":' * 3000])
def test_a_schema_that_is_no_json_is_refused(source):
    """Whoever speaks to the engine's process gives the text itself."""
    with pytest.raises(RequestError, match=r"^the grammar \(json_schema\) is no JSON: ."):
        GRAMMARS.constraint(Grammar(Kind.JSON_SCHEMA, source))


@pytest.mark.parametrize("after", [-1, TOKENIZER.size, V, 10**9])
def test_a_grammar_behind_no_token_is_refused(after):
    with pytest.raises(RequestError, match=f"^a grammar cannot begin behind token {after}; "):
        GRAMMARS.constraint(REGEX, after=after)


@pytest.mark.parametrize(("value", "wrong"), [
    ("json", 'grammar must be an object with "type"'),
    ({}, "grammar.type must be text, json_object, json_schema, regex, lark, gbnf, not None"),
    ({"type": "xml"}, "grammar.type must be .*, not 'xml'"),
    ({"type": ["regex"]}, "grammar.type must be"),
    ({"type": "regex"}, "grammar.regex must be a text that is not empty, not None"),
    ({"type": "lark", "lark": ""}, "grammar.lark must be a text that is not empty"),
    ({"type": "regex", "regex": "a", "lark": "b"}, "grammar has an unknown key 'lark'; there are type, regex"),
    ({"type": "json_object", "schema": {}}, "grammar has an unknown key 'schema'"),
    ({"type": "json_schema"}, 'grammar.json_schema must be an object with "schema", not None'),
    ({"type": "json_schema", "json_schema": {"type": "object"}}, "grammar.json_schema has an unknown key 'type'"),
    ({"type": "json_schema", "json_schema": {"name": "x"}}, "grammar.json_schema.schema must be an object, not None"),
    ({"type": "json_schema", "json_schema": {"schema": {"const": {1}}}}, "grammar.json_schema.schema is no JSON"),
    ({"type": "json_schema", "json_schema": {"schema": {"const": float("nan")}}}, "grammar.json_schema.schema is no"),
], ids=str)  # fmt: skip
def test_what_is_no_grammar_is_refused_with_the_place(value, wrong):
    with pytest.raises(RequestError, match=f"^{wrong}"):
        Grammar.of(value)


def test_no_grammar():
    assert Grammar.of(None) is None
    assert Grammar.of({"type": "text"}) is None
    assert Grammar.of(REGEX) is REGEX
    assert Grammar(Kind.REGEX, "a") == grammar({"type": "regex", "regex": "a"})


def model(text):
    """Logits after some tokens: random, with ten random tokens of thinking if it thinks, and few blanks."""
    rng = np.random.default_rng([*text, 3])
    logits = rng.standard_normal(V).astype(np.float32) * 3
    logits[BLANK] -= 9
    logits[THOUGHT] = 50.0 if len(text) >= 10 else 0.0
    return logits


BLANK = [n for n in range(TOKENIZER.size) if TOKENIZER.token_bytes(n).strip() != TOKENIZER.token_bytes(n)]
PATTERNS = {"right": [7], "wrong": [0], "alternating": [7, 0], "mixed": [1, 7, 0, 2, 5]}
SAMPLINGS = {"greedy": Sampling(), "seeded": Sampling(1.2, top_p=0.95, seed=8, repetition_penalty=1.1)}


@pytest.mark.parametrize("right", PATTERNS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("thinks", [False, True], ids=["answers", "thinks"])
@pytest.mark.parametrize("kind", FORMS)
def test_drafts_never_disturb_a_grammar(kind, thinks, sampling, right):  # case L11
    after = THOUGHT if thinks else None

    def constraint():
        return GRAMMARS.constraint(FORMS[kind], after=after)

    def chooser(limits):
        return Chooser(SAMPLINGS[sampling], vocabulary=V, banned=BANNED, stop_ids=STOPS, constraint=limits)

    alone, verdict = decode(model, chooser(constraint()), lambda *_: (), most=150, stop_ids=STOPS)
    assert verdict.error is None
    answer = alone[alone.index(THOUGHT) + 1 :] if thinks else alone
    if alone[-1] in STOPS:
        assert fits(kind, TOKENIZER.decode(answer).lstrip("\n"))
    else:
        assert len(alone) == 150
        assert kind == "lark"  # the only one without an end
    for depth in range(1, 8) if right != "mixed" else (7,):
        limits = constraint()
        replay = constraint()
        done = 0

        def compare(text, _, limits=limits, replay=replay):
            nonlocal done
            for token in text[done:]:
                if token not in STOPS:
                    replay.advance(token)
            done = len(text)
            assert (limits.allowed() == replay.allowed()).all()
            assert limits.forced() == replay.forced()
            assert limits.finished == replay.finished

        guess = drafter(alone, depth, PATTERNS[right], V)
        drafted, _ = decode(model, chooser(limits), guess, most=150, stop_ids=STOPS, on_commit=compare)
        assert drafted == alone


def test_what_is_forced_makes_good_guesses():
    """The chooser hands it out; a text that leaves no choice then needs fewer windows."""
    made = grammar({"type": "regex", "regex": "The quick brown fox jumps over the lazy dog"})

    def run(free):
        chooser = Chooser(Sampling(), vocabulary=V, stop_ids=STOPS, constraint=GRAMMARS.constraint(made))
        windows = []
        text, _ = decode(
            lambda _: words, chooser, lambda _, most: chooser.forced()[: min(7, most)] if free else (), most=99,
            stop_ids=STOPS, on_commit=lambda *_: windows.append(1),
        )  # fmt: skip
        return text, len(windows)

    words = np.array([len(TOKENIZER.token_bytes(n)) if n < TOKENIZER.size else 0 for n in range(V)], np.float32)
    (plain, many), (drafted, few) = run(free=False), run(free=True)
    assert plain == drafted
    assert few < many / 2
    assert Chooser(Sampling(), vocabulary=V).forced() == []


def test_a_token_too_long_for_the_tree_is_never_allowed():
    class Long(Tokenizer):
        def token_bytes(self, token):
            return b"a" * 1025 if token == 300 else super().token_bytes(token)

    tokenizer = Long.from_metadata(vocabulary_metadata())
    constraint = Grammars(tokenizer, V).constraint(grammar({"type": "regex", "regex": "a+"}))
    assert constraint.allowed()[tokenizer.encode("a")[0]]
    assert not constraint.allowed()[300]


def test_a_fault_inside_the_library_is_an_error_of_the_request() -> None:
    """llguidance panics on this one; a panic is no Exception, and would end the engine's process."""
    source = json.dumps({"required": "🙂" * 50}, ensure_ascii=False)
    with pytest.raises(RequestError, match="llguidance"):
        check_grammar(Grammar(Kind.JSON_SCHEMA, source))
    with pytest.raises(RequestError, match="llguidance"):
        GRAMMARS.constraint(Grammar(Kind.JSON_SCHEMA, source))


@pytest.mark.parametrize("kind", FORMS)
def test_a_grammar_can_be_checked_without_a_vocabulary(kind) -> None:
    check_grammar(FORMS[kind], thinking=True)
    check_grammar(FORMS[kind])
    with pytest.raises(RequestError, match="grammar"):
        check_grammar(Grammar(Kind(kind), "{[("))


def test_a_wide_object_can_be_used() -> None:
    """2,000 properties that may come or not are 8,000 ways to go on; the library's own limit is 2,000."""
    schema = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(2000)}}
    grammar = Grammar.of({"type": "json_schema", "json_schema": {"schema": schema}})
    tokenizer = Tokenizer.from_metadata(vocabulary_metadata())
    constraint = Grammars(tokenizer, tokenizer.size).constraint(grammar)
    for token in tokenizer.encode('{"p1": 1, "p1999": 2}'):
        assert constraint.allowed()[token]
        constraint.advance(token)
    assert constraint.finished


def test_a_grammar_has_a_size_limit() -> None:
    with pytest.raises(RequestError, match="5000000 characters, more than the 4194304"):
        check_grammar(Grammar(Kind.REGEX, "a" * 5_000_000))


def test_what_was_found_right_is_not_looked_at_again(monkeypatch) -> None:
    from strata.text.grammar import grammars

    looked: list[str] = []

    class Counting:
        grammar_from_regex = staticmethod(grammars.LLMatcher.grammar_from_regex)

        @staticmethod
        def validate_grammar(source: str) -> str:
            looked.append(source)
            return "" if "fine" in source else "broken"

    monkeypatch.setattr(grammars, "LLMatcher", Counting)
    for _ in range(3):
        check_grammar(Grammar(Kind.REGEX, "fine 1"))
        with pytest.raises(RequestError):
            check_grammar(Grammar(Kind.REGEX, "wrong 1"))
    assert len(looked) == 4
    check_grammar(Grammar(Kind.REGEX, "fine 1"), thinking=True)
    assert len(looked) == 5
