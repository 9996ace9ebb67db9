"""What is said of a model behind the server."""

from types import SimpleNamespace
from typing import Any

import pytest

from strata.server.served import Served
from strata.worker.messages import Limits, Ready


@pytest.mark.parametrize(
    ("said", "where"),
    [
        ({}, ""),
        ({"device": "cuda:0", "placed": "cuda:0 (Abacus 9): 2 GB"}, "on cuda:0 (Abacus 9): 2 GB"),
        ({"placed": "cpu: 3 MB", "why": "it is too old"}, "on cpu: 3 MB; not on the GPU: it is too old"),
    ],
)
def test_where_it_runs(said, where) -> None:
    ready = Ready(model="m", context=64, vocabulary=300, limits=Limits(1, 1), fingerprint="f", **said)
    client: Any = SimpleNamespace(ready=ready)
    served = Served(client, None, "mine", awaited=False)  # type: ignore[arg-type]
    assert served.where == ""
    served.loaded()
    assert served.where == where
