"""OCM's augmentation in one kernel: the same images as in forty operations."""

import pytest
import torch

from onpro.augment.geometry import CANDIDATES
from onpro.augment.ocm import OcmAugmentation
from tests.kernels import DEVICE, needs_kernels


@pytest.mark.gpu
@needs_kernels
@pytest.mark.parametrize("area", [(0.3, 1.0), (1.0, 1.6), (0.01, 0.05)], ids=str)
@pytest.mark.parametrize("shape", [(40, 32, 32), (7, 12, 12), (3, 40, 48)], ids=str)
def test_equal_numbers_give_equal_images(
    shape: tuple[int, int, int], area: tuple[float, float]
) -> None:
    from onpro.augment.fused_ocm import fused_ocm

    n, height, width = shape
    augmentation = OcmAugmentation(area=area)
    generator = torch.Generator(DEVICE).manual_seed(0)
    images = torch.randn((n, 3, height, width), generator=generator, device=DEVICE)
    state = generator.get_state()
    expected = augmentation(images, generator)
    generator.set_state(state)
    found = fused_ocm(
        images,
        torch.rand((2, n, CANDIDATES), generator=generator, device=DEVICE),
        torch.rand((4, n), generator=generator, device=DEVICE),
        area=area,
        flip=augmentation.flip,
        gray=augmentation.gray,
    )
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
