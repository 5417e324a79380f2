"""The product API: a classifier for a stream whose classes are not known in advance."""

from typing import Any

from sklearn.base import BaseEstimator, ClassifierMixin

from onpro.image_classifier import ImageClassifier


class OnlineClassifier(ImageClassifier, ClassifierMixin, BaseEstimator):  # type: ignore[misc] # untyped bases
    """Learn from a stream of labelled images, batch by batch, and predict at any time.

    Neither the classes nor their number need be known: a class is whatever label arrives, and the
    arrival of a new one is all the method is told of the stream's structure. Every method of
    `onpro methods` is available, those wrapped in another (`er-kd`) too, with its settings as
    keywords.

    On a CPU, unless an encoder is named, the method starts from the values for folders of
    images (a slim encoder) instead of its own defaults, which are made for a GPU.

    The interface is scikit-learn's, but takes images instead of a table, and lists classes in the
    order of their arrival. It is thread-safe: calls that learn wait for each other, and a
    prediction sees the state before or after a step, never one in between.

    The constructor builds no network and initialises no GPU; that happens when learning begins.

    Args:
        method: Name of the method.
        memory: Number of images that may be kept.
        seed: Seed of everything random.
        device: "auto" (a GPU where there is one), "cpu", "cuda", or a device of torch.
        precision: Of the network in training: "auto", "fp32", "tf32", "fp16" or "bf16". On a GPU,
            predictions are in tf32 unless it is "fp32".
        batch_size: A call with more images is learned in batches of this size, in order.
        image_size: Side to which every image is resized; None: all have the size of the first.
        mean: Mean of the pixels scaled to 0…1, one number or one for each channel.
        std: Their standard deviation.
        **settings: Settings of the method.

    Raises:
        ValueError: if a parameter cannot work. All methods raise it for input they refuse, and
            then nothing has changed.
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.three_d_array = True
        return tags
