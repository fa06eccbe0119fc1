"""Who else is told what the fits measured: TensorBoard, Weights & Biases, MLflow. No unit depends on it."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Annotated

from pydantic import BeforeValidator, Field

from raystitch.config.values import FilePath, Part
from raystitch.errors import InputError

IN_STORAGE = "in the storage"
"""In the place of a folder for TensorBoard's files: under ``tensorboard/<sweep>/`` of the study's storage."""
_DATABRICKS = "databricks"  # no folder: MLflow's name of a server that its own settings know
_PACKAGES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}


def _folder(value: object) -> object:
    if value is None or value is False:
        return None
    if not isinstance(value, (str, bool)):
        raise ValueError("give true, or a folder or URL to write to")
    return IN_STORAGE if value is True else value


class WandbConfig(Part):
    """Weights & Biases. Who one is there is left to ``wandb login`` or the environment (``WANDB_MODE`` and so on)."""

    project: str = Field(min_length=1, max_length=128)


class MlflowConfig(Part):
    """MLflow. ``uri`` is by default ``MLFLOW_TRACKING_URI`` of the environment, ``experiment`` the study's name."""

    uri: FilePath | None = None
    experiment: str | None = Field(default=None, min_length=1)


class TrackConfig(Part):
    """What is told of. ``tensorboard`` is a folder or URL, or ``true`` for the storage."""

    tensorboard: Annotated[FilePath | None, BeforeValidator(_folder)] = None
    wandb: WandbConfig | None = None
    mlflow: MlflowConfig | None = None

    @property
    def wanted(self) -> list[str]:
        """Names of those that are to be told."""
        return [name for name in _PACKAGES if getattr(self, name) is not None]

    @property
    def folders(self) -> dict[str, str]:
        """Where it is written to, outside the storage, by the field that says so."""
        uri = self.mlflow.uri if self.mlflow else None
        named = {"track.tensorboard": self.tensorboard, "track.mlflow.uri": uri}
        return {where: folder for where, folder in named.items() if folder not in (None, IN_STORAGE, _DATABRICKS)}


def check_installed(config: TrackConfig) -> None:
    """Refuse what lacks its package.

    Raises:
        InputError: a package is not installed.
    """
    for name in config.wanted:
        if find_spec(_PACKAGES[name]) is None:
            raise InputError(
                f"track.{name}", None, f"needs the package {_PACKAGES[name]}: pip install 'raystitch[tracking]'"
            )
