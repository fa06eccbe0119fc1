"""What a config says of IRIs, stitches and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from raystitch.config.recipe import PixelDistance
from raystitch.config.values import NORMALISATIONS, FieldProblem, Part, Seed, one_or_many

ChannelSteps = tuple[PixelDistance, PixelDistance, PixelDistance]

IRI_PRESETS: Mapping[str, Mapping[str, Any]] = {
    "paper": {"optimiser": "sign_pgd", "steps": 200, "lr": 1 / 255},
    "paper_224": {
        "optimiser": "sign_pgd",
        "steps": 200,
        "lr": tuple(5 * 4.758 / 255 * std for std in NORMALISATIONS["imagenet"][1]),
    },
}
"""The published inversions (METHOD §2). At 224 px the published step is 5·4.758/255 in ImageNet-normalised units; here it is
in pixels, so times the standard deviation of each channel: about 5.4/255."""


def _levels(levels: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(sorted(set(levels), reverse=True))


class IriConfig(Part):
    """How identically represented inputs are found (METHOD §2).

    ``sign_pgd`` is the published optimiser (step ``lr`` = 1/255 in pixels, 200 steps). ``adam`` minimises the sum of log
    r with a cosine step from ``lr`` = 0.1 and needs far fewer steps for the same residual; ``spectral_adam`` does so in a
    cosine basis, with ReLUs that let some gradient through where they are off, and needs fewer still. ``preset: paper``
    (or ``paper_224``) fills in the published values; keys given beside it win. ``precision: mixed`` takes the first three
    quarters of each image's steps in bfloat16, ``bfloat16`` all; residuals, ``tolerance`` and ``levels`` are those of the
    float32 net. ``compile`` lets torch
    compile the steps, by default where a set is large enough to gain by it; ``batch`` is how many images are moved at once, by
    default as many as gain by it and fit in memory. Both change last digits, which may grow over the steps, as another machine
    does, and so not the set's id. An image whose residual is at most ``tolerance`` is finished and makes room for another.
    ``levels`` are residuals at which the run is to leave a set as well, one image at a time, as soon as each gets there;
    the set as good as the run gets comes on top. ``dtype`` is how pixels are stored; uint8 is rounded and r measured again.
    """

    preset: Literal["paper", "paper_224"] | None = Field(default=None, exclude=True)
    optimiser: Literal["spectral_adam", "adam", "sign_pgd"] = "spectral_adam"
    steps: int = Field(default=300, ge=1, le=1_000_000)
    precision: Literal["float32", "mixed", "bfloat16"] = "float32"
    compile: bool | Literal["auto"] = "auto"
    lr: PixelDistance | ChannelSteps | None = None
    tolerance: float = Field(default=0.0, ge=0)
    levels: Annotated[
        tuple[Annotated[float, Field(gt=0, lt=10)], ...],
        BeforeValidator(one_or_many),
        AfterValidator(_levels),
        Field(max_length=20),
    ] = ()
    dtype: Literal["uint8", "float32"] = "uint8"
    batch: Annotated[int, Field(ge=1, le=1_000_000)] | Literal["auto"] = "auto"
    shard_size: int = Field(default=512, ge=1, le=1_000_000)
    seed: Seed = 0

    @model_validator(mode="before")
    @classmethod
    def _fill_preset(cls, value: object) -> object:
        given = {"preset": value} if isinstance(value, str) else value
        if not isinstance(given, dict) or given.get("preset") not in IRI_PRESETS:
            return given
        return {**IRI_PRESETS[given["preset"]], **given}

    @model_validator(mode="after")
    def _consistent(self) -> IriConfig:
        if isinstance(self.lr, tuple) and self.optimiser != "sign_pgd":
            problem = f"lr per channel goes with optimiser sign_pgd, not {self.optimiser}; give one number"
            raise FieldProblem("lr", self.lr, problem)
        if self.levels and self.levels[-1] < self.tolerance:
            problem = f"an image is finished at tolerance {self.tolerance:g}; give levels that are no smaller"
            raise FieldProblem("levels", self.levels, problem)
        return self

    @property
    def step_size(self) -> float | ChannelSteps:
        """The first step in pixel units, one for all channels or one each: ``lr``, or the optimiser's default."""
        return self.lr if self.lr is not None else {"sign_pgd": 1 / 255}.get(self.optimiser, 0.1)


class StitchConfig(Part):
    """What a stitch can express: its map from the front's features to the end's, the same at every position.

    ``identity`` trains nothing and needs equal shapes; ``affine`` is the method's; ``low_rank`` is an affine map whose
    matrix has at most ``rank``; ``mlp`` has one hidden layer of ``width`` ReLU units.
    """

    kind: Literal["identity", "affine", "low_rank", "mlp"] = "affine"
    rank: int | None = Field(default=None, ge=1, le=100_000)
    width: int | None = Field(default=None, ge=1, le=100_000)

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_size(self) -> StitchConfig:
        for field, kind in (("rank", "low_rank"), ("width", "mlp")):
            size = getattr(self, field)
            if self.kind == kind and size is None:
                raise FieldProblem("kind", kind, f"needs {field} beside it")
            if self.kind != kind and size is not None:
                raise FieldProblem(field, size, f"goes with kind {kind}, not {self.kind}")
        return self

    def __str__(self) -> str:
        """The name in results: ``affine``, ``low_rank:8``, ``mlp:64``."""
        size = self.rank or self.width
        return self.kind if size is None else f"{self.kind}:{size}"


class FitConfig(Part):
    """How a stitch is trained (METHOD §5): Adam, lr ×0.1 after 1/3 and 2/3 of the epochs, last partial batch dropped."""

    epochs: int = Field(default=30, ge=1, le=100_000)
    batch: int = Field(default=128, ge=2, le=1_000_000)
    lr: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=1e-4, ge=0)
    init: Literal["pinv", "random", "identity"] = "pinv"
    init_images: int = Field(default=500, ge=2, le=10_000_000)
    stitch: StitchConfig = StitchConfig()


class RobustConfig(Part):
    """Evaluation on adversarial images (METHOD §7): L∞ radius ``eps`` in pixel units, by default 8/255, and 4/255 for images of
    128 pixels or more; ``steps`` of each APGD; ``images`` attacked, evenly spaced over the test set (all by default)."""

    eps: PixelDistance | None = None
    steps: int = Field(default=20, ge=1, le=10_000)
    images: int | None = Field(default=None, ge=1, le=1_000_000_000)
    seed: Seed = 0

    def radius(self, size: int) -> float:
        """ε for images of ``size`` pixels."""
        return self.eps if self.eps is not None else (8 if size < 128 else 4) / 255


class SimilarityConfig(Part):
    """Representation metrics beside the fits (METHOD §7): CKA, invariance-aware CKA and STIR for each pair of points, on up to
    ``images`` training images and their IRIs."""

    images: int = Field(default=2000, ge=16, le=1_000_000_000)
