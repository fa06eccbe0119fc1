"""Data: labelled image sets from several sources, planted cues, and training augmentation.

Images are uint8 (N, 3, H, W) at rest and float32 in [0, 1] at a net's door. :func:`load_images` gives a whole set as one
tensor: in memory, or, above ``RAYSTITCH_MEMORY_BYTES``, as a file in local scratch that all processes of a machine map. Sets
can also be streamed (:func:`open_stream`). Both are quickest from shards (:func:`import_dataset`).
"""

from raystitch.data.augment import Augment
from raystitch.data.cues import Cue, make_cue, with_cue
from raystitch.data.describe import SplitFacts, describe
from raystitch.data.detect import detect
from raystitch.data.hold import fits_in_memory, hold
from raystitch.data.imageset import ImageSet, Split, evenly_spaced, to_float
from raystitch.data.importing import import_dataset
from raystitch.data.load import check_images, count, fingerprint, image_size, load_images, num_classes
from raystitch.data.prefetch import overlapped, to_device
from raystitch.data.scratch import clean_scratch, scratch_folder
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
    "clean_scratch",
    "count",
    "describe",
    "detect",
    "evenly_spaced",
    "fingerprint",
    "fits_in_memory",
    "hold",
    "image_size",
    "import_dataset",
    "load_images",
    "make_cue",
    "num_classes",
    "open_stream",
    "overlapped",
    "scratch_folder",
    "stream_batches",
    "to_device",
    "to_float",
    "with_cue",
]
