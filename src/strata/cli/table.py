"""Plain tables: aligned on a terminal, and still easy to cut into columns by a script."""

from collections.abc import Sequence

from rich.cells import cell_len


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Lines with columns as wide as their widest cell, two spaces between.

    Args:
        head: names of the columns.
        rows: cells.
        right: columns to align to the right.
    """
    lines = [head, *rows]
    widths = [max(cell_len(line[column]) for line in lines) for column in range(len(head))]
    text = ""
    for line in lines:
        cells = []
        for column, cell in enumerate(line):
            space = " " * (widths[column] - cell_len(cell))
            cells.append(space + cell if column in right else cell + space)
        text += "  ".join(cells).rstrip() + "\n"
    return text
