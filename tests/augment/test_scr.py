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
    draw = ScrAugmentation(gray=0.5).draw(n, height, width, generator)
    views = []
    for i, image in enumerate(pixels):
        (left, top), (w, h) = draw.corner[:, i].int().tolist(), draw.sides[:, i].int().tolist()
        view = torchvision.resized_crop(image, top, left, h, w, [height, width])
        views.append(view.flip(-1) if draw.flip[i] else view)
    expected = jitter(torch.stack(views), draw.jitter)
    expected = grayscale_where(draw.gray, expected)
    torch.testing.assert_close(apply(pixels, draw), expected, rtol=0, atol=1e-5)


def test_draws_of_scr(generator: torch.Generator) -> None:
    n, height, width = 20_000, 32, 40
    draw = ScrAugmentation().draw(n, height, width, generator)
    whole = torch.tensor([[width], [height]])
    assert torch.equal(draw.corner, draw.corner.round())
    assert torch.equal(draw.sides, draw.sides.round())
    assert (draw.corner >= 0).all()
    assert (draw.corner + draw.sides <= whole).all()
    area = draw.sides.prod(0) / (height * width)
    assert area.min() > 0.18
    assert area.min() < 0.22
    assert area.max() > 0.93
    room = whole - draw.sides
    variance = (((room + 1) ** 2 - 1) / 12).mean(1)
    from_middle = draw.corner - room / 2
    assert (from_middle.mean(1).abs() < 4 * (variance / n).sqrt()).all()
    assert ((from_middle.square().mean(1) / variance - 1).abs() < 0.05).all()
    assert abs(draw.flip.float().mean() - 0.5) < 0.015
    assert abs(draw.gray.float().mean() - 0.2) < 0.015
    assert abs(draw.jitter.chosen.float().mean() - 0.8) < 0.015
    assert draw.jitter.factors[:, :3].min() >= 0.6 - 1e-6
    assert draw.jitter.factors[:, 3].abs().max() <= 0.1 + 1e-6


def test_scr_varies_each_image_by_itself(pixels: Tensor, generator: torch.Generator) -> None:
    copies = pixels[:1].expand(16, -1, -1, -1)
    views = ScrAugmentation()(copies, generator)
    assert len({tuple(view) for view in views.flatten(1).tolist()}) == 16
    assert views.min() >= 0
    assert views.max() <= 1


def test_dvc_varies_all_images_alike(pixels: Tensor, generator: torch.Generator) -> None:
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
    assert all(steps.draw(1, 8, 8, generator).jitter.chosen.all() for _ in range(50))
