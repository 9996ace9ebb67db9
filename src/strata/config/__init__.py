"""Settings: what they are, where they come from, and which value won. The only reader of the environment."""

from strata.config.merge import Resolved, calibration_file, models_folder, profiles_folder, resolve
from strata.config.models import ModelSettings, ModelTable
from strata.config.origin import Origin
from strata.config.settings import Settings

__all__ = [
    "ModelSettings",
    "ModelTable",
    "Origin",
    "Resolved",
    "Settings",
    "calibration_file",
    "models_folder",
    "profiles_folder",
    "resolve",
]
