"""Methods that augment every image they train on: new and replayed ones."""

import pytest
import torch

from tests.methods.learners import batches, found_in, learner, stepper, watch


@pytest.mark.parametrize("name", ["agem", "aser", "cope", "derpp", "er", "gss", "icarl"])
def test_no_image_is_trained_on_as_it_is(name: str) -> None:
    method = learner(name, memory=20, replay_batch=8)
    method.augment = lambda images: -images
    stream = [*batches(3), *batches(3, start=10)]
    known = -torch.cat([method.normalise(batch.images) for batch in stream])
    forwards = watch(method)
    for batch in stream:
        stepper(method).step(batch)
    trained = [forward.images for forward in forwards if forward.training]
    assert sum(map(len, trained)) > 60  # something is replayed
    for images in trained:
        assert found_in(images, known).all()
