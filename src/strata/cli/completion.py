"""`strata completion`: scripts that let a shell complete our command lines."""

from typing import Annotated, Literal

from cyclopts import Parameter

from strata.cli.context import Context


def completion(  # noqa: D417  # the context is no argument of a command line
    shell: Literal["bash", "zsh", "fish"], /, *, context: Annotated[Context, Parameter(parse=False)]
) -> int:
    """Print a script that lets your shell complete strata's commands and options.

    For bash: `source <(strata completion bash)` in ~/.bashrc. For zsh: write it to a file _strata in a folder of
    $fpath. For fish: write it to ~/.config/fish/completions/strata.fish.

    Args:
        shell: The shell.
    """
    from strata.cli.app import build

    context.output.text(build(context).generate_completion(shell=shell) + "\n")
    return 0
