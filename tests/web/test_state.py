"""Versions of a conversation, and the browser's store of chats, against plain models in Python."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

PATHS = """async (steps) => {
  const { familiesOf, pathOf, pick } = await import("/static/chat/tree.js");
  const nodes = [];
  let picks = {};
  const add = (parent) => {
    const node = { id: `n${nodes.length}`, parent, created: nodes.length };
    nodes.splice(nodes.length >> 1, 0, node);  // the store gives them in no order
    picks = pick(picks, node);
  };
  return steps.map(([what, number]) => {
    const path = pathOf(nodes, picks);
    const node = path[number % Math.max(path.length, 1)];
    if (what === "ask" || !node) add(path.at(-1)?.id ?? null);
    else if (what === "beside") add(node.parent);
    else if (what === "show") {
      const all = familiesOf(nodes).get(node.parent ?? "");
      picks = pick(picks, all[number % all.length]);
    } else picks = {};
    return pathOf(nodes, picks).map((one) => one.id);
  });
}"""


class Versions:
    """The model: for each node the list of its children, and which of them is shown."""

    def __init__(self) -> None:
        self.children: dict[str | None, list[str]] = {None: []}
        self.parent: dict[str, str | None] = {}
        self.shown: dict[str | None, str] = {}

    @property
    def path(self) -> list[str]:
        found: list[str] = []
        at = None
        while self.children[at]:
            at = self.shown.get(at, self.children[at][-1])
            found.append(at)
        return found

    def add(self, parent: str | None) -> None:
        name = f"n{len(self.parent)}"
        self.parent[name], self.children[name] = parent, []
        self.children[parent].append(name)
        self.shown[parent] = name

    def step(self, what: str, number: int) -> list[str]:
        path = self.path
        if what == "ask" or not path:
            self.add(path[-1] if path else None)
        elif what == "forget":
            self.shown = {}
        else:
            parent = self.parent[path[number % len(path)]]
            if what == "beside":
                self.add(parent)
            else:
                self.shown[parent] = self.children[parent][number % len(self.children[parent])]
        return self.path


STEPS = st.lists(
    st.tuples(st.sampled_from(["ask", "ask", "beside", "show", "show", "forget"]), st.integers(0, 30)), max_size=40
)
USUAL = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]}


@settings(max_examples=60, **USUAL)
@given(steps=STEPS)
def test_versions_are_those_of_a_plain_tree(quiet, steps) -> None:
    model = Versions()
    assert quiet.page.evaluate(PATHS, steps) == [model.step(*step) for step in steps]


STORE = """async (steps) => {
  const { Store } = await import("/static/chat/store.js");
  const put = IDBObjectStore.prototype.put;
  let full = false;
  IDBObjectStore.prototype.put = function (...given) {
    if (full) throw new DOMException("no room", "QuotaExceededError");
    return put.apply(this, given);
  };
  let store = await new Store().open();
  for (const chat of await store.chats()) await store.remove(chat, await store.messages(chat.id));
  const seen = [];
  for (const [what, number, content] of steps) {
    const id = `c${number}`;
    const chat = { id, updated: content };
    if (what === "full") full = !full;
    else if (what === "reload") store = await new Store().open();
    else if (what === "remove") await store.remove(chat, await store.messages(id));
    else if (what === "drop") await store.put(chat, [], [{ id: `${id}-m` }]);
    else if (what === "hurry") {  // another one while the first is being written
      store.put(chat, [{ id: `${id}-m`, chat: id, content: -1 }]);
      for (let n = 0; n < 3; n += 1) await null;
      await store.put(chat, [{ id: `${id}-m`, chat: id, content }]);
    } else await store.put(chat, [{ id: `${id}-m`, chat: id, content }]);
    const chats = Object.fromEntries((await store.chats()).map((one) => [one.id, one.updated]));
    const messages = {};
    for (const one of Object.keys(chats)) messages[one] = (await store.messages(one)).map((message) => message.content);
    seen.push([chats, messages, store.fault]);
  }
  full = false;
  IDBObjectStore.prototype.put = put;
  return seen;
}"""


class Kept:
    """The model: what is in the database, and what waits to be written (None: to be deleted)."""

    def __init__(self) -> None:
        self.saved: dict[str, int] = {}
        self.waiting: dict[str, int | None] = {}
        self.full = False
        self.fault: str | None = None

    def write(self, **records: int | None) -> None:
        self.waiting |= records
        if self.full and any(value is not None for value in self.waiting.values()):
            self.fault = "full"
            return
        now = self.saved | self.waiting
        self.saved = {name: value for name, value in now.items() if value is not None}
        self.waiting, self.fault = {}, None

    def step(self, what: str, number: int, content: int) -> list[object]:
        chat, message = f"c{number}", f"m{number}"
        if what == "full":
            self.full = not self.full
        elif what == "reload":
            self.waiting, self.fault = {}, None
        elif what == "remove":
            held = (self.saved | self.waiting).get(message)
            self.write(**{chat: None}, **({message: None} if held is not None else {}))
        else:
            self.write(**{chat: content, message: None if what == "drop" else content})
        now = self.saved | self.waiting
        chats = {name: value for name, value in now.items() if name[0] == "c" and value is not None}
        messages = {name: [] if now.get(f"m{name[1:]}") is None else [now[f"m{name[1:]}"]] for name in chats}
        return [chats, messages, self.fault]


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["put", "hurry", "drop", "remove", "full", "reload"]), st.integers(0, 2), st.integers(0, 99)
    ),
    max_size=14,
)


@settings(max_examples=25, **USUAL)
@given(steps=CHANGES)
def test_what_is_kept_is_what_a_dictionary_would_keep(quiet, steps) -> None:
    model = Kept()
    assert quiet.page.evaluate(STORE, steps) == [model.step(*step) for step in steps]
