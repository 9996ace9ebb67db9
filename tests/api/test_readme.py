import re
from pathlib import Path

README = Path(__file__).parents[2] / "README.md"


def test_the_examples_in_the_readme_print_what_they_say(capsys) -> None:
    found = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    examples = [example for example in found if example.startswith("import strata")]  # others need a server
    assert len(examples) == 2
    for example in examples:
        exec(compile(example, str(README), "exec"), {})  # our own text
        said = re.findall(r"^print\(.*\)  # (.*)$", example, re.MULTILINE)
        assert said
        assert capsys.readouterr().out.splitlines() == said
