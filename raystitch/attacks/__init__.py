"""Adversarial images in an L∞ ball (METHOD §7, §8): PGD, APGD, their published combination, and full AutoAttack.

A model is any function from images (B, 3, H, W) in [0, 1] to logits (B, C) that treats images one by one; normalisation is
inside. Where it is a module it is attacked in eval mode, and its modes, parameters, buffers and gradients are afterwards
what they were.
"""

from raystitch.attacks.apgd import apgd
from raystitch.attacks.combined import Attacked, apgd_ce_dlr, robust_accuracy
from raystitch.attacks.pgd import pgd
from raystitch.attacks.standard import require_autoattack, standard_autoattack

__all__ = ["Attacked", "apgd", "apgd_ce_dlr", "pgd", "require_autoattack", "robust_accuracy", "standard_autoattack"]
