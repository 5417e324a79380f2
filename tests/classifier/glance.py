"""An encoder so small that a step and a file take milliseconds."""

from torch import Tensor, nn

from onpro.nn import Encoder, EncoderKind


class Glance(Encoder):
    """One layer on four mean colours."""

    def __init__(self, image_shape: tuple[int, int, int]) -> None:
        super().__init__()
        self.out_features = 8
        self.layers = nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 8))

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.layers(images)
        return features


NAME = "glance"
KIND = EncoderKind(Glance, minimum_side=2)
