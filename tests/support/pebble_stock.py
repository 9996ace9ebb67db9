"""A small stock for the trainer, made from the shipped vocabulary: no corpus is read and nothing is trained."""

import json
import random
from pathlib import Path

import numpy as np

SENTENCES = [
    f"The {a} of the {b} is kept in the {c}." for a in ("name", "list") for b in ("file", "class") for c in "xyz"
]


def tokenizer_json(metadata) -> str:
    """The shipped vocabulary as a tokenizer.json of the trainer's own making."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

    from pebble.data.vocabulary import ADDED, BASE, PATTERN

    tokens = list(metadata["tokenizer.ggml.tokens"])
    merges = [tuple(m.split(" ")) for m in metadata["tokenizer.ggml.merges"]]
    made = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens[:BASE])}, merges))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PATTERN), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    for text, special in ADDED:
        token = AddedToken(text, special=special, normalized=False)
        made.add_special_tokens([token]) if special else made.add_tokens([token])
    return made.to_str()


def small_stock(folder: Path) -> Path:
    """Write the folder that ``prepare`` would."""
    from strata.formats.codebooks.grids import grid
    from strata.gguf import open_model
    from strata.pebble import path

    metadata = open_model(path()).metadata
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json(metadata), "utf-8")
    (folder / "template.jinja").write_text(metadata["tokenizer.chat_template"], "utf-8")
    rng = random.Random(0)
    ids = np.array([rng.randrange(2534) for _ in range(3000)], np.uint16)
    np.savez(folder / "ids.npz", prose=ids, code=ids[::-1], held_out=ids)
    np.save(folder / "iq3_s.npy", grid("IQ3_S"))
    lists = {
        "sentences": SENTENCES,
        "held_out_sentences": SENTENCES,
        "library": [("len", "Return the number of items in a container."), ("os.getcwd", "Return the folder.")],
        "words": [" the", " file", " object"],
    }
    (folder / "lists.json").write_text(json.dumps(lists), "utf-8")
    return folder
