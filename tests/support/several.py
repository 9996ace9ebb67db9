"""A live server before several scripted engines."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strata.loading.files import ModelFile
from strata.server.desk import Desk
from strata.server.fleet.fleet import Fleet, Member
from strata.server.options import Options
from strata.server.served import Served
from strata.worker import Care, Client, ScriptedEngine
from support.site import Site, turn


class Several(Site):
    """A server in a thread, and the scripts of its models as files."""

    def __init__(self, fleet: Fleet, clients: list[Client], folder: Path, **options: Any) -> None:
        self.fleet, self.clients, self.folder = fleet, clients, folder
        self.served, self.client = fleet.first, fleet.first.client
        given = Options(**{"port": 0, "drain": 0.2, **options})
        self._serve(Desk(fleet, given), given)

    def close(self) -> None:
        super().close()
        for client in self.clients:
            client.close(5.0 if client.status.ready else 0.1)

    def states(self) -> dict[str, str]:
        """What `/v1/models` says of each."""
        return {one["id"]: one["status"]["value"] for one in self.get("/v1/models").json["data"]}

    def loads(self, name: str) -> int:
        """How often a model was loaded."""
        return self.fleet.history[name].loads


def until(holds: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not come"
        time.sleep(0.01)


def several(
    folder: Path,
    *names: str,
    models: dict[str, dict[str, Any]] | None = None,
    options: dict[str, Any] | None = None,
    **fleet: Any,
) -> Several:
    """Start a server.

    Args:
        folder: for scripts.
        names: of the models; each says its name until its script says otherwise.
        models: what is not as usual: values of `Member`, `Served` (aliases, said, awaited), `ScriptedEngine`.
        options: of the server.
        fleet: values of `Fleet`.
    """
    clients: list[Client] = []
    members: list[Member] = []
    for name in names:
        given = dict((models or {}).get(name, {}))
        script = folder / f"{name}.json"
        if not script.exists():
            say(folder, name, f"</think>\n\nI am {name}")
        engine = ScriptedEngine(str(script), **{key: given.pop(key) for key in ("loading_ms",) if key in given})
        awaited = given.pop("awaited", False)
        clients.append(Client(engine, Care(asleep=not awaited, beat=0.05)))
        served = Served(
            clients[-1],
            lambda: ModelFile.open(None),
            name,
            aliases=given.pop("aliases", ()),
            said=given.pop("said", None),
            awaited=awaited,
        )
        members.append(Member(served=served, **given))
    return Several(Fleet(members, **fleet), clients, folder, **(options or {}))


def say(folder: Path, name: str, *turns: str | dict[str, Any]) -> None:
    """What a model says from its next load on; the last turn is repeated."""
    listed = [turn(one) if isinstance(one, str) else one for one in turns]
    (folder / f"{name}.json").write_text(json.dumps({"turns": listed}), encoding="utf-8")
