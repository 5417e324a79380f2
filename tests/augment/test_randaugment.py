"""RandAugment, against torchvision's operations on 8-bit images."""

import pytest
import torch
from torch import Tensor
from torchvision.transforms import RandAugment, autoaugment
from torchvision.transforms.functional import InterpolationMode

from onpro.augment.randaugment import OPERATIONS, RandAugmentation, apply

NAMES = {
    "identity": "Identity",
    "shear-x": "ShearX",
    "shear-y": "ShearY",
    "translate-x": "TranslateX",
    "translate-y": "TranslateY",
    "rotate": "Rotate",
    "brightness": "Brightness",
    "color": "Color",
    "contrast": "Contrast",
    "sharpness": "Sharpness",
    "posterize": "Posterize",
    "solarize": "Solarize",
    "autocontrast": "AutoContrast",
    "equalize": "Equalize",
}


def pictures(side: tuple[int, int] = (32, 32), count: int = 8) -> Tensor:
    """Smooth images with noise, some dark, one of a single colour."""
    generator = torch.Generator().manual_seed(0)
    rough = torch.rand((count, 3, 4, 4), generator=generator)
    images = torch.nn.functional.interpolate(rough, size=side, mode="bilinear")
    images = images * torch.linspace(0.3, 1, count)[:, None, None, None]
    images[-1] = 0.5
    noise = torch.randint(0, 9, images.shape, generator=generator)
    noise[-1] = 0
    return (images * 245).floor() + noise


def reference(images: Tensor, operation: str, sign: int, magnitude: int) -> Tensor:
    """What torchvision makes of one batch of 8-bit images."""
    height, width = images.shape[-2:]
    space = RandAugment()._augmentation_space(31, (height, width))
    values, signed = space[NAMES[operation]]
    value = float(values[magnitude]) if values.ndim else 0.0
    value = sign * value if signed else value
    return torch.stack(
        [
            autoaugment._apply_op(
                image.to(torch.uint8), NAMES[operation], value, InterpolationMode.NEAREST, None
            )
            for image in images
        ]
    ).float()


@pytest.mark.parametrize("side", [(32, 32), (24, 40)])
@pytest.mark.parametrize("magnitude", [0, 7, 15, 30])
@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_is_that_of_torchvision(
    operation: str, sign: int, magnitude: int, side: tuple[int, int]
) -> None:
    images = pictures(side)
    chosen = torch.full((len(images),), OPERATIONS.index(operation))
    ours = apply(images, chosen, torch.full((len(images),), float(sign)), magnitude)
    theirs = reference(images, operation, sign, magnitude)
    # Positions halfway between two pixels, and values just below a whole number, round either way.
    differ = ((ours - theirs).abs() > 1).any(dim=1).float().mean()
    assert differ <= 0.02
    assert ((ours - theirs).abs() == 1).float().mean() <= 0.02


def test_each_image_gets_its_own_operation() -> None:
    images, count = pictures(count=len(OPERATIONS)), len(OPERATIONS)
    sign = torch.ones(count)
    together = apply(images, torch.arange(count), sign, 15)
    for index in range(count):
        alone = apply(images[index : index + 1], torch.tensor([index]), sign[:1], 15)
        assert torch.equal(together[index : index + 1], alone)


@pytest.mark.parametrize("per", ["batch", "image"])
def test_operations_are_drawn_per_batch_or_per_image(per: str) -> None:
    images = pictures(count=1).expand(64, -1, -1, -1) / 255
    augmented = RandAugmentation(per=per)(images, torch.Generator().manual_seed(1))  # type: ignore[arg-type] # a parameter
    different = len({image.numpy().tobytes() for image in augmented})
    assert different == 1 if per == "batch" else different > 32


def test_augmented_images_are_pixels() -> None:
    images = torch.rand((16, 3, 8, 8), generator=torch.Generator().manual_seed(0))
    augmented = RandAugmentation(number=5, per="image")(images, torch.Generator().manual_seed(2))
    assert augmented.shape == images.shape
    assert torch.equal((augmented * 255).round() / 255, augmented)
    assert 0 <= augmented.min() <= augmented.max() <= 1


def test_no_operation_leaves_the_pixels() -> None:
    images = pictures() / 255
    assert torch.allclose(
        RandAugmentation(number=0)(images, torch.Generator()), images, rtol=0, atol=1e-6
    )


def test_the_generator_decides() -> None:
    images = pictures() / 255
    first, second, other = (
        RandAugmentation()(images, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4)
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, other)
