"""Data: labelled image sets from several sources, planted cues, and training augmentation.

Images are uint8 (N, 3, H, W) at rest and float32 in [0, 1] at a net's door.
"""

from raystitch.data.augment import Augment
from raystitch.data.cues import Cue, make_cue, with_cue
from raystitch.data.imageset import ImageSet, Split, to_float
from raystitch.data.load import count, fingerprint, image_size, load_images, num_classes

__all__ = [
    "Augment",
    "Cue",
    "ImageSet",
    "Split",
    "count",
    "fingerprint",
    "image_size",
    "load_images",
    "make_cue",
    "num_classes",
    "to_float",
    "with_cue",
]
