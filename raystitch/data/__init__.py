"""Data: labelled image sets from several sources, planted cues, and training augmentation.

Images are uint8 (N, 3, H, W) at rest and float32 in [0, 1] at a net's door. Sets that fit are loaded whole
(:func:`load_images`); others are streamed (:func:`open_stream`), best from shards (:func:`import_dataset`).
"""

from raystitch.data.augment import Augment
from raystitch.data.cues import Cue, make_cue, with_cue
from raystitch.data.describe import SplitFacts, describe
from raystitch.data.detect import detect
from raystitch.data.imageset import ImageSet, Split, evenly_spaced, to_float
from raystitch.data.importing import import_dataset
from raystitch.data.load import check_images, count, fingerprint, image_size, load_images, num_classes
from raystitch.data.stream import Batch, ImageStream, open_stream, stream_batches

__all__ = [
    "Augment",
    "Batch",
    "Cue",
    "ImageSet",
    "ImageStream",
    "Split",
    "SplitFacts",
    "check_images",
    "count",
    "describe",
    "detect",
    "evenly_spaced",
    "fingerprint",
    "image_size",
    "import_dataset",
    "load_images",
    "make_cue",
    "num_classes",
    "open_stream",
    "stream_batches",
    "to_float",
    "with_cue",
]
