"""What the user asks for: one short YAML file is one study.

Every object is frozen and validated at the door, so the rest of the package trusts it. Defaults are those of the method
(Athanasiadis et al., ICML 2026) wherever it states one.
"""

from raystitch.config.dataset import CueConfig, DataConfig, ExpectConfig, SplitLimit
from raystitch.config.fitting import ChannelSteps, FitConfig, IriConfig, RobustConfig, SimilarityConfig, StitchConfig
from raystitch.config.load import expand_refs, load_config, parse_config, setting_pairs
from raystitch.config.objective import EXACT, Objective, Term, canonical_objective, objective_terms, why_not_exact
from raystitch.config.recipe import PRESETS, AttackConfig, PgdConfig, SimclrConfig, TrainConfig
from raystitch.config.resources import Resources, ResourcesConfig
from raystitch.config.schema import (
    ITSELF,
    Grid,
    ModelConfig,
    Normalisation,
    S3Config,
    SettingConfig,
    StudyConfig,
)
from raystitch.config.track import MlflowConfig, TrackConfig, WandbConfig
from raystitch.config.values import (
    ATTACKS,
    NORMALISATIONS,
    SINGLE_SIDED,
    Arm,
    AttackName,
    EvalSet,
    Protocol,
    server_url,
)

__all__ = [
    "ATTACKS",
    "EXACT",
    "ITSELF",
    "NORMALISATIONS",
    "PRESETS",
    "SINGLE_SIDED",
    "Arm",
    "AttackConfig",
    "AttackName",
    "ChannelSteps",
    "CueConfig",
    "DataConfig",
    "EvalSet",
    "ExpectConfig",
    "FitConfig",
    "Grid",
    "IriConfig",
    "MlflowConfig",
    "ModelConfig",
    "Normalisation",
    "Objective",
    "PgdConfig",
    "Protocol",
    "Resources",
    "ResourcesConfig",
    "RobustConfig",
    "S3Config",
    "SettingConfig",
    "SimclrConfig",
    "SimilarityConfig",
    "SplitLimit",
    "StitchConfig",
    "StudyConfig",
    "Term",
    "TrackConfig",
    "TrainConfig",
    "WandbConfig",
    "canonical_objective",
    "expand_refs",
    "load_config",
    "objective_terms",
    "parse_config",
    "server_url",
    "setting_pairs",
    "why_not_exact",
]
