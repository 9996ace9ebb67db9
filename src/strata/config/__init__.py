"""Settings: what they are, where they come from, and which value won. The only reader of the environment."""

from strata.config.merge import Origin, Resolved, models_folder, resolve
from strata.config.settings import Settings

__all__ = ["Origin", "Resolved", "Settings", "models_folder", "resolve"]
