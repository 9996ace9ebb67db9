import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_in_the_readme_run(capsys) -> None:
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert examples
    for example in examples:
        exec(compile(example, str(README), "exec"), {})  # our own text
        assert "1, 2, 3, 4, 5" in capsys.readouterr().out
