"""A model's file, opened: all that its header says, before any weight is read. No torch."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from strata.engine import Sampling
from strata.errors import ModelError
from strata.gguf import TensorDirectory, open_model
from strata.hub.folder import draft_beside
from strata.loading.bundled import find
from strata.loading.defaults import file_sampling
from strata.text import ChatTemplate, Tokenizer

PAGE, PAGES = 4096, 256
"""Bytes and number of the pages that a fingerprint reads of each file."""


@dataclass(frozen=True)
class ModelFile:
    """An open model file or split set; its parts are made when they are asked for."""

    directory: TensorDirectory

    @classmethod
    def open(cls, path: str | Path | None) -> "ModelFile":
        """Open a file, any file of a split set, or a bundled model by its name; None is Pebble.

        Raises:
            GgufError: the file or its set is damaged or incomplete.
            StrataError: there is no such file.
        """
        return cls(open_model(find(path)))

    @property
    def path(self) -> Path:
        """The first file."""
        return self.directory.files[0]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """Keys of the header."""
        return self.directory.metadata

    @cached_property
    def sampling(self) -> Sampling:
        """Values the file recommends.

        Raises:
            ModelError: a recommended value makes no sense.
        """
        try:
            return file_sampling(self.metadata)
        except ModelError as error:
            raise self.error(error) from error

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Text to tokens and back.

        Raises:
            TextError: its keys are missing or do not fit together.
        """
        return Tokenizer.from_metadata(self.metadata)

    @cached_property
    def template(self) -> ChatTemplate | None:
        """Renders conversations; None if the file has none.

        Raises:
            TextError: it cannot be compiled.
        """
        return ChatTemplate.from_metadata(self.metadata) if "tokenizer.chat_template" in self.metadata else None

    @cached_property
    def draft(self) -> TensorDirectory | None:
        """The draft head that was pulled beside the model; None if there is none, or the model has its own.

        Raises:
            GgufError: its file is damaged or gone.
        """
        if self.metadata.get("qwen4exp.nextn_predict_layers", 0):
            return None
        path = draft_beside(self.path)
        return None if path is None else open_model(path)

    @cached_property
    def fingerprint(self) -> str:
        """Of the headers, the files' sizes, and pages spread over the weights; cheap whatever the size."""
        digest = hashlib.sha256()
        parts = [self.directory, *([self.draft] if self.draft is not None else [])]
        for file in (file for part in parts for file in part.data_files):
            size = len(file.buffer)
            digest.update(f"{size}\n".encode())
            for place in range(0, size, max(PAGE, size // PAGES)):
                digest.update(file.buffer[place : place + PAGE].tobytes())
        for info in (info for part in parts for info in part.tensors.values()):
            digest.update(f"{info.name}\0{info.type.name}\0{info.shape}\0{info.offset}\n".encode())
        return digest.hexdigest()[:32]

    def error(self, error: ModelError) -> ModelError:
        """The error with the file's name before it."""
        return ModelError(f"{self.path}: {error}")
