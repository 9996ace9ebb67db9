"""Templates that come with the package."""

from importlib.resources import files


def pebble_template() -> str:
    """The chat template of Pebble, the small model in the box."""
    return (files("strata.text") / "templates" / "pebble.jinja").read_text(encoding="utf-8")
