"""`strata pull`: find out what is meant, say what comes, bring it, and say how to use it."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from strata.cli.context import Context
from strata.cli.flags import PullFlags
from strata.config import models_folder

if TYPE_CHECKING:
    from pathlib import Path

    from strata.hub.folder import Receipt

_SOURCE = PullFlags()


def pull(  # noqa: D417  # the context is no argument of a command line
    model: str,
    /,
    *,
    revision: str | None = None,
    draft: bool = True,
    source: PullFlags = _SOURCE,
    login: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    dry: Annotated[bool, Parameter(negative=(), show_default=False)] = False,
    context: Annotated[Context, Parameter(parse=False)],
) -> int:
    """Download a model from Hugging Face, or from a mirror of it, and check it.

    A download that was interrupted goes on where it broke off when the same command is given again. Every file is
    checked against the hub's checksum before it gets its name. The model is then called OWNER/NAME:QUANT, for --model
    and everywhere else.

    Args:
        model: OWNER/NAME:QUANT; without :QUANT if the repository has one model only. A wrong one shows what there is.
        revision: Branch, tag or commit; without it, the newest. Either way all files are of one commit.
        draft: Also take the draft head, where the repository has it in a file of its own.
        login: Show your saved login to a mirror too; huggingface.co is always shown it.
        dry: Only say what would be downloaded.
    """
    from strata.cli.pull.progress import Download
    from strata.hub.catalogue import find_known
    from strata.hub.errors import HubError
    from strata.hub.folder import Folder
    from strata.hub.name import parsed
    from strata.hub.pull import order
    from strata.hub.pull import pull as bring
    from strata.hub.remote import Hub
    from strata.memory.budget.shown import shown_bytes

    settings = context.resolve(source.settings()).settings
    known = find_known(model)
    if known:
        raise HubError(
            f"the catalogue knows how large {known[0].title} is, not where it is to be had ({known[0].publisher} "
            "publishes it); "
            f"give its repository: strata pull OWNER/NAME:{known[0].quant}"
        )
    name = parsed(model)
    hub = Hub(settings.hub_endpoint, login)
    folder = Folder(models_folder(settings))
    wanted = order(hub, name, revision, draft=draft)
    count = len(wanted.model.files)
    files = f"{count} files" if count > 1 else wanted.model.files[0].path
    beside = f" and a draft head of {shown_bytes(wanted.draft.size)}" if wanted.draft else ""
    context.output.note(
        f"{wanted.listing.repo}:{wanted.model.quant} at {wanted.listing.commit[:12]}: {files}, "
        f"{shown_bytes(wanted.model.size)}{beside}, to {folder.home(name.repo)}"
    )
    if dry:
        if context.output.json:
            context.output.record(
                {
                    "type": "order",
                    "name": f"{name.repo}:{wanted.model.quant}",
                    "revision": wanted.listing.commit,
                    "size": wanted.size,
                    "files": [file.path for one in (wanted.model, wanted.draft) if one for file in one.files],
                }
            )
        return 0
    with Download(wanted.model.quant) as shown:
        receipt = bring(hub, wanted, folder, shown.step)
    _done(receipt, folder.home(name.repo) / receipt.files[0], context)
    return 0


def _done(receipt: "Receipt", path: "Path", context: Context) -> None:
    if context.output.json:
        context.output.record(
            {
                "type": "pulled",
                "name": receipt.name,
                "path": str(path),
                "revision": receipt.revision,
                "files": list(receipt.files),
                "sizes": list(receipt.sizes),
                "sha256": list(receipt.sha256),
                "draft": receipt.draft,
            }
        )
        return
    context.output.text(f"{path}\n")
    context.output.note(
        f"checked; `strata plan {receipt.name}` says what it takes, `strata chat --model {receipt.name}` runs it"
    )
