"""Everything the generator needs, prepared once and carried as one folder to wherever training runs."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from pebble.data import counting, library, lookup, sums, talk, tools
from pebble.data.corpus import Corpus, collect
from pebble.data.dialogue import Conversation, Template
from pebble.data.vocabulary import ENDOFTEXT, plain_words, train
from pebble.data.words import ADJECTIVES, NOUNS


@dataclass(frozen=True, slots=True)
class Stock:
    """Tokenizer, template, prose as ids, sentences as text, and the small lists."""

    tokenizer: Tokenizer
    template: Template
    prose: np.ndarray  # uint16, modules separated by <|endoftext|>
    code: np.ndarray
    held_out: np.ndarray
    sentences: list[str]
    held_out_sentences: list[str]
    library: list[tuple[str, str]]
    words: list[str]  # vocabulary entries to copy, each with a leading space
    grid: np.ndarray  # float32 [512, 4], codewords of IQ3_S


def _strip(text: str) -> str:
    for tag in ("<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"):
        text = text.replace(tag, "")
    return text.replace("<tool_response>", "").replace("</tool_response>", "")


def _task_texts(corpus: Corpus, known: list[tuple[str, str]], template: Template, count: int) -> Iterator[str]:
    """Rendered task documents, for the merges of task phrases and tool JSON."""
    rng = random.Random(0)
    for _ in range(count):
        messages, offered = tools.draw(rng)
        yield _strip(template.text(Conversation(messages, offered)))
        for drawn in (
            counting.draw(rng, 5, 9),
            sums.draw(rng),
            talk.draw(rng, corpus.sentences),
            library.draw(rng, known),
            lookup.draw(rng, corpus.sentences, 200),
        ):
            yield _strip(template.text(Conversation(list(drawn))))


def _ids(tokenizer: Tokenizer, texts: list[str]) -> np.ndarray:
    parts: list[int] = []
    for encoding in tokenizer.encode_batch(texts):
        parts += [*encoding.ids, ENDOFTEXT]
    return np.array(parts, np.uint16)


def prepare(folder: Path) -> Stock:
    """Collect the corpus, train the tokenizer and write ``folder``. The same interpreter gives the same bytes."""
    from strata.formats.codebooks.grids import grid  # only here: training runs without Strata

    folder.mkdir(parents=True, exist_ok=True)
    corpus, known, template = collect(), library.entries(), Template()
    words = [f" {word}" for word in (*ADJECTIVES, *NOUNS)] * 20
    tokenizer = train([*corpus.prose, *words, *_task_texts(corpus, known, template, 700)])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "template.jinja").write_text(template.source, "utf-8")
    np.save(folder / "iq3_s.npy", grid("IQ3_S"))
    np.savez(
        folder / "ids.npz",
        prose=_ids(tokenizer, corpus.prose),
        code=_ids(tokenizer, corpus.code),
        held_out=_ids(tokenizer, corpus.held_out),
    )
    lists = {
        "sentences": corpus.sentences,
        "held_out_sentences": corpus.held_out_sentences,
        "library": known,
        "words": plain_words(tokenizer),
    }
    (folder / "lists.json").write_text(json.dumps(lists), "utf-8")
    return load(folder)


def load(folder: Path) -> Stock:
    """Read what :func:`prepare` wrote."""
    ids = np.load(folder / "ids.npz")
    lists = json.loads((folder / "lists.json").read_text("utf-8"))
    return Stock(
        Tokenizer.from_file(str(folder / "tokenizer.json")),
        Template(folder / "template.jinja"),
        ids["prose"],
        ids["code"],
        ids["held_out"],
        lists["sentences"],
        lists["held_out_sentences"],
        [(name, line) for name, line in lists["library"]],
        lists["words"],
        np.load(folder / "iq3_s.npy"),
    )
