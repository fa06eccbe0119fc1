"""Which timm families the table in the docs lists: a small member of each, at a small image size where the net allows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Family:
    """One member of a timm family, and how it is built.

    Attributes:
        name: of the family.
        arch: timm name.
        size: side of the images in pixels; small where the net allows.
        args: keyword arguments of the net.
    """

    name: str
    arch: str
    size: int
    args: Mapping[str, Any] = field(default_factory=dict)


def _sized(name: str, arch: str, size: int, **args: Any) -> Family:
    """A net that is told the size of its images."""
    return Family(name, arch, size, {"img_size": size, **args})


FAMILIES: tuple[Family, ...] = (
    Family("ResNet", "resnet18", 32, {"stem": "cifar"}),
    Family("ResNet, bottleneck", "resnet50", 32),
    Family("ResNet-v2", "resnetv2_18", 32),
    Family("BiT", "resnetv2_50x1_bit", 32),
    Family("ResNeXt", "resnext50_32x4d", 32),
    Family("Wide ResNet", "wide_resnet50_2", 32),
    Family("ECA-ResNet", "ecaresnet26t", 32),
    Family("SE-ResNet", "legacy_seresnet18", 32),
    Family("SK-ResNet", "skresnet18", 32),
    Family("Res2Net", "res2net50_26w_4s", 32),
    Family("ResNeSt", "resnest14d", 32),
    Family("TResNet", "tresnet_m", 32),
    Family("RegNet-X", "regnetx_002", 32),
    Family("RegNet-Y", "regnety_002", 32),
    Family("RegNet-Z", "regnetz_005", 32),
    Family("NF-RegNet", "nf_regnet_b0", 32),
    Family("NFNet", "eca_nfnet_l0", 32),
    Family("VGG", "vgg11", 32, {"mlp_ratio": 0.1}),
    Family("VGG-BN", "vgg16_bn", 32, {"mlp_ratio": 0.1}),
    Family("RepVGG", "repvgg_a0", 32),
    Family("DenseNet", "densenet121", 32),
    Family("RDNet", "rdnet_tiny", 32),
    Family("DPN", "dpn48b", 32),
    Family("DLA", "dla46_c", 32),
    Family("HRNet", "hrnet_w18_small", 32),
    Family("VoVNet", "ese_vovnet19b_slim_dw", 32),
    Family("SelecSLS", "selecsls42", 32),
    Family("CSPNet", "cspresnet50", 32),
    Family("DarkNet", "darknet17", 32),
    Family("HGNet-v2", "hgnetv2_b0", 32),
    Family("Inception-v3", "inception_v3", 75),
    Family("Inception-v4", "inception_v4", 75),
    Family("Inception-ResNet-v2", "inception_resnet_v2", 75),
    Family("Xception", "xception41", 64),
    Family("MobileNet-v1", "mobilenetv1_100", 32),
    Family("MobileNet-v2", "mobilenetv2_035", 32),
    Family("MobileNet-v3", "mobilenetv3_small_050", 32),
    Family("MobileNet-v4", "mobilenetv4_conv_small_035", 32),
    Family("MobileOne", "mobileone_s0", 32),
    Family("MNASNet", "mnasnet_050", 32),
    Family("FBNet", "fbnetc_100", 32),
    Family("HardCoRe-NAS", "hardcorenas_a", 32),
    Family("GhostNet", "ghostnet_050", 32),
    Family("ReXNet", "rexnet_100", 32),
    Family("MixNet", "mixnet_s", 32),
    Family("LCNet", "lcnet_035", 32),
    Family("TinyNet", "tinynet_e", 32),
    Family("EfficientNet", "efficientnet_b0", 32),
    Family("EfficientNet-v2", "efficientnetv2_rw_t", 32),
    Family("EfficientNet-Lite", "tf_efficientnet_lite0", 32),
    Family("FasterNet", "fasternet_t0", 32),
    Family("StarNet", "starnet_s050", 32),
    Family("RepViT", "repvit_m0_9", 32),
    Family("ConvNeXt", "convnext_atto", 32),
    Family("ConvNeXt-v2", "convnextv2_atto", 32),
    Family("ConvMixer", "convmixer_768_32", 32),
    Family("InceptionNeXt", "inception_next_atto", 32),
    Family("MambaOut", "mambaout_femto", 32),
    _sized("ViT", "vit_tiny_patch16_224", 32, patch_size=4),
    _sized("ViT-S", "vit_small_patch16_224", 32),
    Family("ViT, hybrid", "vit_tiny_r_s16_p8_224", 224),
    _sized("ViT, relative positions", "vit_relpos_small_patch16_224", 32),
    _sized("FlexiViT", "flexivit_small", 32),
    _sized("SigLIP", "vit_base_patch16_siglip_224", 32, depth=4),
    _sized("DINOv2", "vit_small_patch14_dinov2", 28),
    _sized("DINOv3", "vit_small_patch16_dinov3", 32),
    _sized("DeiT", "deit_tiny_patch16_224", 32),
    _sized("DeiT, distilled", "deit_tiny_distilled_patch16_224", 32),
    _sized("DeiT-III", "deit3_small_patch16_224", 32),
    _sized("BEiT", "beit_base_patch16_224", 32, depth=4),
    _sized("EVA-02", "eva02_tiny_patch14_224", 28),
    _sized("CaiT", "cait_xxs24_224", 32),
    _sized("ConViT", "convit_tiny", 32),
    Family("XCiT", "xcit_nano_12_p16_224", 32),
    Family("LeViT", "levit_128s", 224),
    Family("VOLO", "volo_d1_224", 64, {"img_size": 64}),
    _sized("Swin", "swin_tiny_patch4_window7_224", 56),
    _sized("Swin-v2", "swinv2_tiny_window8_256", 64),
    _sized("Hiera", "hiera_tiny_224", 64),
    _sized("MViT-v2", "mvitv2_tiny", 64),
    _sized("MaxViT", "maxvit_pico_rw_256", 64),
    _sized("CoAtNet", "coatnet_nano_rw_224", 64),
    _sized("CoaT", "coat_lite_tiny", 64),
    _sized("GC-ViT", "gcvit_xxtiny", 64),
    Family("DaViT", "davit_tiny", 64),
    Family("FocalNet", "focalnet_tiny_srf", 64),
    Family("PVT-v2", "pvt_v2_b0", 64),
    _sized("Twins", "twins_svt_small", 64),
    Family("CrossViT", "crossvit_9_240", 240),
    _sized("PiT", "pit_ti_224", 64),
    _sized("NesT", "nest_tiny", 64),
    Family("TNT", "tnt_s_legacy_patch16_224", 224),
    _sized("Visformer", "visformer_tiny", 64),
    Family("PoolFormer", "poolformer_s12", 32),
    Family("CAFormer", "caformer_s18", 32),
    _sized("MLP-Mixer", "mixer_s16_224", 32),
    _sized("ResMLP", "resmlp_12_224", 32),
    _sized("gMLP", "gmlp_ti16_224", 32),
    _sized("Sequencer", "sequencer2d_s", 56),
    Family("MobileViT", "mobilevit_xxs", 64),
    Family("MobileViT-v2", "mobilevitv2_050", 64),
    Family("EfficientViT", "efficientvit_b0", 64),
    Family("EfficientFormer", "efficientformer_l1", 224),
    Family("EfficientFormer-v2", "efficientformerv2_s0", 224),
    Family("FastViT", "fastvit_t8", 64),
    Family("EdgeNeXt", "edgenext_xx_small", 64),
    Family("SwiftFormer", "swiftformer_xs", 64),
    Family("TinyViT", "tiny_vit_5m_224", 224),
)
"""A small member of each family."""
