"""Every method on every kind of stream."""

import pytest

from onpro.methods import methods, settings_for
from onpro.runs import RunConfig, prepare
from onpro.streams import stream_kind, stream_kinds


@pytest.mark.parametrize("name", methods())
def test_every_method_learns_from_every_kind(name: str) -> None:
    for kind in stream_kinds():
        config = RunConfig(
            name,
            settings_for(name, "tiny"),
            "tiny",
            memory=20,
            stream=stream_kind(kind),
            limit_per_class=8,
            device="cpu",
        )
        trainer = prepare(config)
        trainer.run()
        assert [len(row) for row in trainer.accuracy] == [1, 2, 3]
        assert trainer.curve[-1].images == trainer.stream.num_images
