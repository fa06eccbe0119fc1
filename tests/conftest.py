"""What every test may use: the shared reference data, and quiet single-threaded torch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of public weights, images and reference values that lies beside the checkout."""
    folder = Path(__file__).parents[2] / "shared"
    if not folder.is_dir():
        pytest.skip(f"reference data are not at {folder}")
    return folder
