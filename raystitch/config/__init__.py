"""What the user asks for: one short YAML file is one study.

Every object is frozen and validated at the door, so the rest of the package trusts it. Defaults are those of the method
(Athanasiadis et al., ICML 2026) wherever it states one.
"""

from raystitch.config.load import expand_refs, load_config, parse_config
from raystitch.config.objective import EXACT, Objective, Term, canonical_objective, objective_terms, why_not_exact
from raystitch.config.recipe import PRESETS, AttackConfig, SimclrConfig, TrainConfig
from raystitch.config.schema import (
    CueConfig,
    DataConfig,
    FitConfig,
    IriConfig,
    ModelConfig,
    Normalisation,
    Resources,
    ResourcesConfig,
    SettingConfig,
    SplitLimit,
    StitchConfig,
    StudyConfig,
)
from raystitch.config.values import NORMALISATIONS, Arm, EvalSet, Protocol

__all__ = [
    "EXACT",
    "NORMALISATIONS",
    "PRESETS",
    "Arm",
    "AttackConfig",
    "CueConfig",
    "DataConfig",
    "EvalSet",
    "FitConfig",
    "IriConfig",
    "ModelConfig",
    "Normalisation",
    "Objective",
    "Protocol",
    "Resources",
    "ResourcesConfig",
    "SettingConfig",
    "SimclrConfig",
    "SplitLimit",
    "StitchConfig",
    "StudyConfig",
    "Term",
    "TrainConfig",
    "canonical_objective",
    "expand_refs",
    "load_config",
    "objective_terms",
    "parse_config",
    "why_not_exact",
]
