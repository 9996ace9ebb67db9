"""`strata completion`: scripts that let a shell complete our command lines."""

from typing import Literal


def completion(shell: Literal["bash", "zsh", "fish"], /) -> int:
    """Print a script that lets your shell complete strata's commands and options.

    For bash: `source <(strata completion bash)` in ~/.bashrc. For zsh: write it to a file _strata in a folder of
    $fpath. For fish: write it to ~/.config/fish/completions/strata.fish.

    Args:
        shell: The shell.
    """
    from strata.cli.app import bare

    print(bare().generate_completion(shell=shell))
    return 0
