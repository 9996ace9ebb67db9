"""The prefix tree against a dictionary: from (salt, symbols) to what was kept there."""

import time
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from strata.session import prefix
from strata.session.prefix import Tree


@dataclass(eq=False)
class Line:
    """Rows of a text: its symbols themselves, one byte each."""

    symbols: tuple[int, ...]
    start: int
    stale: bool = False

    @property
    def bytes(self) -> int:
        assert not self.stale, "rows were used after they were split"
        return len(self.symbols)

    def split(self, at: int) -> "tuple[Line, Line]":
        self.stale, cut = True, at - self.start
        return Line(self.symbols[:cut], self.start), Line(self.symbols[cut:], at)


@dataclass(eq=False)
class Mark:
    """A checkpoint of a text."""

    key: tuple[str, tuple[int, ...]]
    bytes: int = 7


@dataclass
class Known:
    """What the dictionary says of a key."""

    mark: Mark
    used: int
    pins: list = field(default_factory=list)
    marked: bool = False


@pytest.fixture(autouse=True)
def short_runs(monkeypatch):
    """Of symbols that are compared at once, so that texts have several."""
    monkeypatch.setattr(prefix, "RUN", 2)


def prefixes(keys) -> set:
    return {(salt, symbols[:n]) for salt, symbols in keys for n in range(1, len(symbols) + 1)}


SALTS = st.sampled_from(["", "picture"])
TEXTS = st.lists(st.integers(0, 1), min_size=1, max_size=7).map(tuple)
FORMS = st.sampled_from([(True,) * 7, (True,) * 7, (True,) * 3 + (False,) * 4, (False,) * 7])


class Machine(RuleBasedStateMachine):
    pins = Bundle("pins")

    def __init__(self) -> None:
        super().__init__()
        self.tree: Tree[Line, Mark] = Tree()
        self.known: dict[tuple[str, tuple[int, ...]], Known] = {}
        self.clock = 0

    def node(self, key):
        (node,) = [n for n in self.tree if n.full() == key[1] and n.checkpoint and n.checkpoint.key == key]
        return node

    def tick(self) -> int:
        self.clock += 1
        return self.clock

    def forget(self, parts) -> set:
        """Take the checkpoints that left the tree out of the dictionary, and check that the rows left with them."""
        before = prefixes(self.known)
        gone = {part.key for part in parts if isinstance(part, Mark)}
        for key in gone:
            del self.known[key]
        lines = sum(len(part.symbols) for part in parts if isinstance(part, Line))
        assert lines == len(before) - len(prefixes(self.known))
        return gone

    @rule(salt=SALTS, text=TEXTS, forms=FORMS, marked=st.booleans())
    def insert(self, salt, text, forms, marked) -> None:
        symbols = tuple(t if same else ~t for t, same in zip(text, forms, strict=False))
        asked = []

        def rows(start: int, end: int) -> Line:
            asked.append((start, end))
            return Line(symbols[start:end], start)

        key = (salt, symbols)
        held = prefixes(self.known) & prefixes([key])
        there = max((len(prefix) for _, prefix in held), default=0)
        node = self.tree.insert(salt, symbols, rows, Mark(key), marked=marked)
        assert asked == ([(there, len(symbols))] if there < len(symbols) else [])
        entry = self.known.setdefault(key, Known(node.checkpoint, 0))
        assert node.checkpoint is entry.mark
        entry.used, entry.marked = self.tick(), entry.marked or marked

    @rule(salt=SALTS, text=TEXTS, most=st.integers(0, 9), loose=st.booleans(), every=st.integers(1, 3), data=st.data())
    def find(self, salt, text, most, loose, every, data) -> None:
        if self.known:  # something that begins as one that is known
            known = data.draw(st.sampled_from(sorted(self.known)))[1]
            text = (*(s if s >= 0 else ~s for s in known), *text[: data.draw(st.integers(0, 3))])

        def fits(key) -> bool:
            symbols = key[1]
            if key[0] != salt or len(symbols) > min(most, len(text)) or len(symbols) % every:
                return False
            return all(s == t or (loose and s == ~t) for s, t in zip(symbols, text, strict=False))

        found = self.tree.find(salt, text, min(most, len(text)), loose=loose, every=every)
        fitting = [key for key in self.known if fits(key)]
        if not fitting:
            assert found is None
            return
        assert found.checkpoint.key in fitting
        assert found.end == max(len(key[1]) for key in fitting)
        self.tree.use(found)
        self.known[found.checkpoint.key].used = self.tick()

    @precondition(lambda self: self.known)
    @rule(data=st.data(), target=pins)
    def pin(self, data):
        key = data.draw(st.sampled_from(sorted(self.known)))
        node = self.node(key)
        self.tree.pin(node)
        self.known[key].pins.append(node)
        return key, node

    @rule(pin=consumes(pins))
    def unpin(self, pin) -> None:
        key, node = pin
        self.tree.unpin(node)
        if key in self.known and node in self.known[key].pins:
            self.known[key].pins.remove(node)

    @precondition(lambda self: any(not k.pins for k in self.known.values()))
    @rule(data=st.data())
    def remove(self, data) -> None:
        key = data.draw(st.sampled_from(sorted(k for k, v in self.known.items() if not v.pins)))
        assert self.forget(self.tree.remove(self.node(key))) == {key}

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def drop(self, data) -> None:
        salt, symbols = data.draw(st.sampled_from(sorted(self.known)))
        lost = self.node((salt, symbols))
        edge = symbols[: lost.start + 1]
        behind = {(s, t) for s, t in self.known if s == salt and t[: len(edge)] == edge}
        assert self.forget(self.tree.drop(lost)) == behind

    @precondition(lambda self: self.known)
    @rule(budget=st.integers(0, 80), protected=st.sampled_from([0, 1000]))
    def evict(self, budget, protected) -> None:
        shared = {n.checkpoint.key for n in self.tree if n.checkpoint and n.shared}
        before = dict(self.known)
        gone = self.forget(list(self.tree.evict(lambda: self.tree.bytes > budget, lambda _: False, protected)))
        assert not any(before[key].pins for key in gone)
        if self.tree.bytes > budget:
            assert all(entry.pins for entry in self.known.values())
        free = {key for key, entry in self.known.items() if not entry.pins}
        if protected and gone & shared:
            assert free <= shared, "a shared one went before one that is not"
            gone, free = gone & shared, free & shared
        elif protected:
            free -= shared
        if gone and free:
            assert max(before[key].used for key in gone) < min(self.known[key].used for key in free)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), step=st.integers(1, 4))
    def thin(self, data, step) -> None:
        key = data.draw(st.sampled_from(sorted(self.known)))
        node = self.node(key)
        stays = {n.checkpoint.key for n in node.path() if n.checkpoint and (n.shared or n.marked or n.pins)} | {key}
        before = set(self.known)
        gone = self.forget(self.tree.thin(node, (), step))
        assert not gone & stays
        assert all(key[1][: len(k[1])] == k[1] and key[0] == k[0] for k in gone)
        assert before - gone == set(self.known)

    @invariant()
    def the_tree_holds_what_the_dictionary_says(self) -> None:
        assert self.tree.bytes == len(prefixes(self.known)) + 7 * len(self.known)
        found = {}
        for node in self.tree:
            assert node.rows.symbols == node.symbols == node.full()[node.start :]
            assert node.start < node.end == node.start + len(node.symbols)
            assert node.checkpoint or node.children, "an edge that leads to no checkpoint"
            assert node.pins_below == node.pins + sum(child.pins_below for child in node.children.values())
            assert node.rows_used >= node.used
            if node.checkpoint:
                found[node.checkpoint.key] = (node.pins, node.marked)
                assert node.full() == node.checkpoint.key[1]
        assert found == {key: (len(entry.pins), entry.marked) for key, entry in self.known.items()}


Machine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestTree = Machine.TestCase


def filled(*texts: str) -> Tree[Line, Mark]:
    tree: Tree[Line, Mark] = Tree()
    for text in texts:
        keep(tree, text)
    return tree


def keep(tree, text: str, **kwargs):
    symbols = tuple(map(ord, text))
    return tree.insert("", symbols, lambda a, b: Line(symbols[a:b], a), Mark(("", symbols)), **kwargs)


def texts(tree) -> set[str]:
    return {"".join(map(chr, node.full())) for node in tree if node.checkpoint}


def evict(tree, budget, protected=0, spare=lambda _: False):
    return list(tree.evict(lambda: tree.bytes > budget, spare, protected))


def test_the_whole_prompt_is_never_a_hit() -> None:  # case K02
    tree = filled("ab", "abcd")
    prompt = list(map(ord, "abcd"))
    assert tree.find("", prompt, len(prompt) - 1).end == 2
    assert tree.find("", [*prompt, 1], len(prompt)).end == 4


def test_another_salt_is_another_conversation() -> None:  # case K19
    tree = filled("ab")
    assert tree.find("picture", [97, 98, 99], 3) is None
    assert tree.at("picture", [97, 98]) is None
    assert tree.at("", [97, 98]).end == 2
    assert tree.at("", [97]) is None
    assert tree.at("", [97, 99]) is None


def test_a_system_prompt_outlives_the_conversations_behind_it() -> None:
    tree = filled("system", "system: one", "system: two")
    for i in range(50):
        keep(tree, f"another {i}")
        evict(tree, 120, protected=60)
    assert "system" in texts(tree)
    assert "system: one" not in texts(tree)
    assert "another 49" in texts(tree)


def test_what_is_protected_is_bounded_and_ages() -> None:  # case K15: old roots never keep new conversations out
    tree = filled()
    for i in range(50):
        for name in ("", ": one", ": two"):
            keep(tree, f"system {i:02}{name}")
            evict(tree, 120, protected=60)
            assert f"system {i:02}{name}" in texts(tree)
    assert tree.bytes <= 120
    assert "system 49" in texts(tree)
    assert "system 00" not in texts(tree)


def test_what_is_elsewhere_too_is_not_given_up() -> None:
    tree = filled("ab", "abcd")
    assert evict(tree, 0, spare=lambda _: True) == []
    assert texts(tree) == {"ab", "abcd"}


def test_a_pinned_conversation_may_leave_memory_but_not_the_tree() -> None:
    tree = filled("ab", "abcd", "xy")
    node = tree.find("", list(map(ord, "abcde")), 4)
    tree.pin(node)
    evict(tree, 0)
    assert texts(tree) == {"abcd"}
    with pytest.raises(AssertionError, match="is in use"):
        tree.remove(node)
    tree.unpin(node)
    with pytest.raises(AssertionError, match="more often than pinned"):
        tree.unpin(node)
    evict(tree, 0)
    assert texts(tree) == set()


def test_what_is_kept_of_no_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="no tokens"):
        keep(filled(), "")


def test_nothing_stays_of_conversations_that_left() -> None:  # case N06
    tree: Tree[Line, Mark] = Tree()
    for i in range(2000):
        symbols = (i, *range(10))
        node = tree.insert(
            f"picture {i % 500}", symbols, lambda a, b, of=symbols: Line(of[a:b], a), Mark(("", symbols))
        )
        tree.pin(node)
        evict(tree, 300, protected=150)
        tree.unpin(node)
        assert tree.bytes <= 300
        assert len(tree._roots) <= 30
    evict(tree, 0)
    assert not tree._roots


def test_rows_that_cannot_be_had_leave_nothing_behind() -> None:
    tree = filled("abcd")

    def fails(*_):
        raise KeyError

    for symbols in ((1, 2, 3), tuple(map(ord, "abx"))):
        with pytest.raises(KeyError):
            tree.insert("", symbols, fails, Mark(("", symbols)))
    with pytest.raises(KeyError):
        tree.insert("picture", (1, 2), fails, Mark(("picture", (1, 2))))
    assert texts(tree) == {"abcd"}
    assert list(tree._roots) == [""]


def test_a_long_text_is_found_in_no_time(monkeypatch):
    """The least of many rounds, for others may be at work: one symbol at a time takes ten times as long."""
    monkeypatch.undo()
    tree, text, took = Tree(), [7 * i % 90_001 + 1000 for i in range(32_768)], []
    node = tree.insert("", text, lambda start, end: Line(tuple(text[start:end]), start), Mark(("", tuple(text))))
    asked = tuple(int(str(token)) for token in [*text, 5])
    for _ in range(20):
        began = time.perf_counter()
        assert tree.find("", asked, len(asked) - 1) is node
        took.append(time.perf_counter() - began)
    assert min(took) < 1.5e-3
