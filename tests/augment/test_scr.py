"""The augmentations of SCR and DVC."""

import torch
from torch import Tensor
from torchvision.transforms.v2 import functional as torchvision

from onpro.augment import DvcAugmentation, ScrAugmentation
from onpro.augment.color import grayscale_where, jitter
from onpro.augment.scr import apply


def test_equals_crop_flip_jitter_gray_one_by_one(
    pixels: Tensor, generator: torch.Generator
) -> None:
    n, _, height, width = pixels.shape
    params = ScrAugmentation(gray=0.5).sample_params(n, height, width, generator)
    views = []
    for i, image in enumerate(pixels):
        (left, top), (w, h) = params.corner[:, i].int().tolist(), params.sides[:, i].int().tolist()
        view = torchvision.resized_crop(image, top, left, h, w, [height, width])
        views.append(view.flip(-1) if params.flip[i] else view)
    expected = jitter(torch.stack(views), params.jitter)
    expected = grayscale_where(params.gray, expected)
    torch.testing.assert_close(apply(pixels, params), expected, rtol=0, atol=1e-5)


def test_parameters_of_scr(generator: torch.Generator) -> None:
    n, height, width = 20_000, 32, 40
    params = ScrAugmentation().sample_params(n, height, width, generator)
    whole = torch.tensor([[width], [height]])
    assert torch.equal(params.corner, params.corner.round())
    assert torch.equal(params.sides, params.sides.round())
    assert (params.corner >= 0).all()
    assert (params.corner + params.sides <= whole).all()
    area = params.sides.prod(0) / (height * width)
    assert area.min() > 0.18
    assert area.min() < 0.22
    assert area.max() > 0.93
    room = whole - params.sides
    variance = (((room + 1) ** 2 - 1) / 12).mean(1)
    from_middle = params.corner - room / 2
    assert (from_middle.mean(1).abs() < 4 * (variance / n).sqrt()).all()
    assert ((from_middle.square().mean(1) / variance - 1).abs() < 0.05).all()
    assert abs(params.flip.float().mean() - 0.5) < 0.015
    assert abs(params.gray.float().mean() - 0.2) < 0.015
    assert abs(params.jitter.chosen.float().mean() - 0.8) < 0.015
    assert params.jitter.factors[:, :3].min() >= 0.6 - 1e-6
    assert params.jitter.factors[:, 3].abs().max() <= 0.1 + 1e-6


def test_scr_augments_each_image_independently(pixels: Tensor, generator: torch.Generator) -> None:
    copies = pixels[:1].expand(16, -1, -1, -1)
    views = ScrAugmentation()(copies, generator)
    assert len({tuple(view) for view in views.flatten(1).tolist()}) == 16
    assert views.min() >= 0
    assert views.max() <= 1


def test_dvc_augments_all_images_alike(pixels: Tensor, generator: torch.Generator) -> None:
    batch = torch.cat((pixels[:2], pixels[:1], pixels[:2]))
    state = generator.get_state()
    views = DvcAugmentation()(batch, generator)
    assert torch.equal(views[0], views[2])
    assert torch.equal(views[:2], views[3:])
    assert not torch.equal(views[0], views[1])
    generator.set_state(state)
    torch.testing.assert_close(DvcAugmentation()(batch[:1], generator), views[:1])
    assert not torch.equal(DvcAugmentation()(batch, generator), views)


def test_dvc_always_jitters(generator: torch.Generator) -> None:
    steps = DvcAugmentation().steps
    assert all(steps.sample_params(1, 8, 8, generator).jitter.chosen.all() for _ in range(50))
