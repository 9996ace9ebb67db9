"""The exam's questions as token ids in a JSON file, for machines without a tokenizer (`tools/gpu_pebble.py`)."""

import json
import random
from pathlib import Path

import numpy as np

from pebble.data import counting, tools
from pebble.data.dialogue import Conversation
from pebble.data.mixture import Mixture
from pebble.data.stock import Stock
from pebble.exam.teacher import sheets

PROSE = 1000
"""Tokens of held-out prose."""


def write(stock: Stock, count: int, path: Path) -> None:
    """Write them.

    The file is an object: `abilities`, each with a `name` and `documents` of `ids` and the places of the `answer` in
    them; `prose`, ids of held-out text; `prompts`, ids to continue. The control is left out: only the CPU has it.
    """
    abilities = []
    for sheet in sheets(stock, count, seed=1):
        if sheet.ability.choose != "indexer":
            continue
        documents = []
        for ids, answer in zip(sheet.ids, sheet.answer, strict=True):
            places = np.nonzero(answer)[0]
            documents.append({"ids": ids[: int(places[-1]) + 1].tolist(), "answer": places.tolist()})
        abilities.append({"name": sheet.ability.name, "documents": documents})
    prompts = []
    for i in range(8):
        rng = random.Random(f"elsewhere:{i}")
        messages, offered = tools.test(rng) if i % 2 else (counting.test(rng, 20), None)
        talk = Conversation(messages, offered or [], thinking=i % 4 < 2)
        ids, weights = Mixture(stock).encode(talk)
        prompts.append([int(x) for x in ids[: int(np.nonzero(np.asarray(weights) >= 1)[0][0])]])
    value = {"abilities": abilities, "prose": stock.held_out[:PROSE].tolist(), "prompts": prompts}
    path.write_text(json.dumps(value), "utf-8")
