"""Identically represented inputs (IRIs, METHOD §2): invert a representation, and keep the result in lossless shards."""

from raystitch.iris.encoding import decode_shard, encode_shard
from raystitch.iris.index import level_index, set_index
from raystitch.iris.invert import Inversion, Inverter, invert, residual
from raystitch.iris.shard import Shard, make_shards
from raystitch.iris.start import sample_seed

__all__ = [
    "Inversion",
    "Inverter",
    "Shard",
    "decode_shard",
    "encode_shard",
    "invert",
    "level_index",
    "make_shards",
    "residual",
    "sample_seed",
    "set_index",
]
