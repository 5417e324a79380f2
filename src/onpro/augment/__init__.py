"""Image augmentation: batched, on the images' device, with independent parameters per image."""

from onpro.augment.color import ColorJitter
from onpro.augment.crop import CropAugmentation
from onpro.augment.mixup import mix
from onpro.augment.normalise import Normalise
from onpro.augment.ocm import OcmAugmentation
from onpro.augment.pipeline import NAMES, Augmentation, Chain, OnPixels, build, parts_of
from onpro.augment.randaugment import RandAugmentation
from onpro.augment.rotation import (
    check_rotation,
    interleaved_labels,
    interleaved_rotations,
    rotated_labels,
    rotations,
)
from onpro.augment.scr import DvcAugmentation, ScrAugmentation

__all__ = [
    "NAMES",
    "Augmentation",
    "Chain",
    "ColorJitter",
    "CropAugmentation",
    "DvcAugmentation",
    "Normalise",
    "OcmAugmentation",
    "OnPixels",
    "RandAugmentation",
    "ScrAugmentation",
    "build",
    "check_rotation",
    "interleaved_labels",
    "interleaved_rotations",
    "mix",
    "parts_of",
    "rotated_labels",
    "rotations",
]
