"""OnPro, online prototype learning.

Wei et al., "Online Prototype Learning for Online Continual Learning", ICCV 2023. The defaults
follow the official code, which is what made the paper's numbers; where the paper's text says
otherwise, a setting offers its reading too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from onpro import losses
from onpro.augment import check_rotation, rotated_labels, rotations
from onpro.memory.reservoir import reservoir_batch
from onpro.methods import feedback
from onpro.methods.base import Context, Method, total
from onpro.methods.feedback import Mixture
from onpro.methods.registry import register
from onpro.methods.settings import Settings, require
from onpro.streams import Batch


@dataclass(frozen=True)
class OnProSettings(Settings):
    """Settings of OnPro."""

    learning_rate: float = 5e-4
    """Learning rate of Adam (default from the paper)."""

    weight_decay: float = 1e-4
    """Weight decay of Adam, added to the gradient (default from the paper)."""

    betas: tuple[float, float] = (0.9, 0.99)
    """Betas of Adam (default from the official code)."""

    replay_batch: int = 64
    """Number of stored images replayed with each batch (default from the paper)."""

    replay_per_class: int = 7
    """After the first task at most this many replayed images for each class seen so far; 0 for no
    such limit (default from the official code)."""

    prototype_temperature: float = 0.5
    """Temperature of the contrast between prototypes (default from the paper)."""

    instance_temperature: float = 0.07
    """Temperature of the contrast between images (default from the paper)."""

    new_prototypes: bool = True
    """Contrast the prototypes of the new batch (default from the paper)."""

    seen_prototypes: bool = True
    """Contrast the prototypes of the replayed images (default from the paper)."""

    seen_without_new: bool = False
    """Leave the current task's classes out of the replay prototypes' contrast (default from the
    paper; on in one of its ablations)."""

    mixup: bool = True
    """Replay mixed images (default from the paper); off removes the feedback too."""

    feedback: float = 0.25
    """Share of the replay batch mixed from confused pairs of classes, the paper's alpha; 0 leaves
    only random mixup (default from the paper for CIFAR-10)."""

    mixup_probability: float = 0.6
    """Probability of mixing, of a batch and of each image in it, and of a confused pair (default
    from the official code for CIFAR-10)."""

    random_mixup_highest: float = 0.6
    """Random mixup draws its weight between 0 and this (default from the official code)."""

    feedback_mixup_beta: float = 0.4
    """Confused pairs draw their weight from Beta(b, b) of this b (default from the official
    code)."""

    pair_kernel: Literal["inverse", "gaussian"] = "inverse"
    """How the distance of two prototypes becomes a weight: softmax of its inverse (default from
    the official code) or exp(-distance squared) (the paper's text)."""

    pair_rounding: Literal["exact", "plain"] = "exact"
    """How weights become numbers of images: rounded and mended to the exact total (default from
    the official code) or only rounded (the paper's text)."""

    instance_loss: Literal["official", "supcon"] = "official"
    """Contrast between images: in the form of the official code (default) or SupCon summed over
    the images (the paper's text)."""

    views: Literal["raw", "augmented"] = "raw"
    """First view of an image: itself (default from the official code) or augmented (the paper's
    text). The second is always augmented."""

    rotations: Literal[1, 4, 16] = 16
    """Rotated copies of each image in the contrast between images (default from the official
    code)."""

    projection: int = 128
    """Dimension of the linear projection, 0 for none (default from the paper)."""

    feature_slice: bool = True
    """Compare projections with a random slice of the features too (default from the official
    code)."""

    similarity_scale_first: float = 1.0
    """Scale of similarities between images in the first task (default from the official code)."""

    similarity_scale: float = 0.5
    """Scale of similarities between images in later tasks (default from the official code for
    CIFAR-10)."""

    cross_entropy: Literal["replay", "both", "separate"] = "replay"
    """Images of the cross-entropy after the first task: replayed ones (default from the paper),
    replayed and new in one mean, or the sum of a mean of each."""

    def check(self) -> None:
        """Refuse what cannot work."""
        positive = {
            "learning rate": self.learning_rate,
            "prototype temperature": self.prototype_temperature,
            "instance temperature": self.instance_temperature,
            "feedback mixup beta": self.feedback_mixup_beta,
            "similarity scale": self.similarity_scale,
            "first similarity scale": self.similarity_scale_first,
        }
        for name, value in positive.items():
            require(value > 0, f"the {name} must be above 0, not {value}.")
        shares = {
            "feedback": self.feedback,
            "mixup probability": self.mixup_probability,
            "random mixup's highest weight": self.random_mixup_highest,
        }
        for name, value in shares.items():
            require(0 <= value <= 1, f"{name} must lie between 0 and 1, not {value}.")
        choices = {
            "pair kernel": (self.pair_kernel, "inverse", "gaussian"),
            "pair rounding": (self.pair_rounding, "exact", "plain"),
            "instance loss": (self.instance_loss, "official", "supcon"),
            "views": (self.views, "raw", "augmented"),
            "cross entropy": (self.cross_entropy, "replay", "both", "separate"),
        }
        for name, (choice, *known) in choices.items():
            require(choice in known, f"{name} must be {' or '.join(known)}, not '{choice}'.")
        require(self.weight_decay >= 0, "the weight decay must not be negative.")
        require(all(0 <= b < 1 for b in self.betas), "betas must be at least 0 and below 1.")
        require(self.replay_batch >= 1, "the replay batch must hold at least 1 image.")
        require(self.replay_per_class >= 0, "the replay limit per class must not be negative.")
        require(self.projection >= 0, "the projection's dimension must not be negative.")


@register(
    "onpro",
    OnProSettings,
    title="Online prototype learning",
    paper="Online Prototype Learning for Online Continual Learning",
    year=2023,
    memory="images, batch reservoir",
    inference="linear head",
    images_per_step="458 in the first task, then up to 2560",
)
class OnPro(Method[OnProSettings]):
    """L = L_OPE + L_INS + L_CE.

    Three forwards in train mode stay three: batch-norm statistics follow each of them, and
    evaluation relies on them.
    """

    def __init__(self, settings: OnProSettings, context: Context) -> None:
        super().__init__(settings, context)
        check_rotation(context.image_shape, settings.rotations)
        self.network = self.make_network(projection=settings.projection)
        width = self.network.encoder.out_features
        require(
            not self._slices or settings.projection <= width,
            f"a projection of {settings.projection} dimensions is wider than the encoder's "
            f"{width} features: make it narrower or switch the feature slice off.",
        )
        self.optimizer = torch.optim.Adam(
            self.network.parameters(),
            settings.learning_rate,
            betas=settings.betas,
            weight_decay=settings.weight_decay,
            fused=True,
        )
        self.memory = self.make_memory()
        dimension = settings.projection or width
        self.prototypes = torch.zeros(self.network.classes, dimension, device=context.device)
        """Q: replay prototypes of the last step, a zero row for each absent class."""

    def learn(self, batch: Batch) -> dict[str, Tensor]:
        """One Adam step, then the memory's update."""
        learn = self.learn_first_task if self.progress.task == 0 else self.learn_later_task
        terms = learn(self.prepare(batch.images), batch.labels)
        self.descend(total(terms))
        reservoir_batch(self.memory, batch.images, batch.labels, self.random["memory"])
        return terms

    def learn_first_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """The first task: cross-entropy on new images; replay serves only its prototypes."""
        views = self.rotated_views(new)
        features = self.encode(torch.cat(views))
        terms = {"ins_new": self.instance_new(features, labels)}
        if len(self.memory):
            terms |= self.replay_prototypes(*self.draw(self.settings.replay_batch))
        terms |= self.new_prototypes(features, labels)
        terms["ce"] = cross_entropy(self.classify(self.vary(new)), labels)
        return terms

    def learn_later_task(self, new: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Later tasks: cross-entropy on replayed images, mixed where classes are confused."""
        old, old_labels = self.draw(self.replay_size())
        replay = self.mixed(old, old_labels)

        new_views, replay_views = self.rotated_views(new), self.rotated_views(replay.images)
        features = self.encode(torch.cat([*new_views, *replay_views]))
        sizes = [2 * len(view) for view, _ in (new_views, replay_views)]
        of_new, of_replay = torch.split(features, sizes)
        terms = {
            "ins_new": self.instance_new(of_new, labels),
            "ins_replay": self.instance_replay(of_replay, replay.labels),
            "ce": self.replay_cross_entropy(replay, new, labels),
        }
        terms |= self.replay_prototypes(old, old_labels)
        terms |= self.new_prototypes(of_new, labels)
        return terms

    # What is replayed

    def replay_size(self) -> int:
        """At most `replay_per_class` images for each class seen so far."""
        most, each = self.settings.replay_batch, self.settings.replay_per_class
        return min(most, each * len(self.progress.seen)) if each else most

    def mixed(self, images: Tensor, labels: Tensor) -> Mixture:
        """The replay batch, partly mixed from confused classes, partly at random.

        The first step of a task mixes nothing: the prototypes are those of another task.
        """
        settings, generator = self.settings, self.random["mixup"]
        if not settings.mixup or self.progress.steps_in_task == 0:
            return feedback.unmixed(images, labels)
        base = int(len(labels) * round(1 - settings.feedback, 9))  # 1 − 0.9 is a bit below 0.1
        kept = torch.randperm(len(labels), generator=generator, device=labels.device)[:base]
        randomly = feedback.mix_randomly(
            images[kept],
            labels[kept],
            probability=settings.mixup_probability,
            highest=settings.random_mixup_highest,
            generator=generator,
        )
        if base == len(labels):
            return randomly
        confused = feedback.mix_confused(
            self.memory,
            self.prepare,
            self.prototypes,
            len(labels) - base,
            kernel=settings.pair_kernel,
            rounding=settings.pair_rounding,
            probability=settings.mixup_probability,
            concentration=settings.feedback_mixup_beta,
            generator=generator,
        )
        mixture = feedback.joined(randomly, confused)
        # Plain rounding may give no image, and a small batch no other: then it stays as it is.
        return mixture if len(mixture.first) else feedback.unmixed(images, labels)

    # Views and embeddings

    def rotated_views(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The rotated images, block after block, and their augmented versions."""
        rotated = rotations(images, self.settings.rotations)
        return self.first_view(rotated), self.vary(rotated)

    def first_view(self, images: Tensor) -> Tensor:
        """The image itself, or augmented in the paper's reading."""
        return images if self.settings.views == "raw" else self.vary(images)

    def embed(self, features: Tensor) -> Tensor:
        """z: unit projections of features."""
        return normalize(self.network.project(features))

    # Terms of the loss

    @property
    def _slices(self) -> bool:
        return self.settings.feature_slice and bool(self.settings.projection)

    def similarity(self, features: Tensor) -> Tensor:
        """Similarities between images, features (2B, width) → (2B, 2B)."""
        settings = self.settings
        first = self.progress.task == 0
        scale = settings.similarity_scale_first if first else settings.similarity_scale
        z = self.embed(features)
        if not self._slices:
            return scale * (z @ z.T)
        start = self.slice_start(features.shape[1] - z.shape[1])
        return losses.slice_similarity(z, normalize(features), start, scale)

    def slice_start(self, positions: int) -> Tensor:
        """d: a random first feature of the slice, (1,); the last feature is never used."""
        generator, device = self.random["slice"], self.context.device
        return torch.randint(max(1, positions), (1,), generator=generator, device=device)

    def instance_new(self, features: Tensor, labels: Tensor) -> Tensor:
        """L_n: contrast between the new images."""
        return self.instance_loss(features, labels, losses.new_instance_loss)

    def instance_replay(self, features: Tensor, labels: Tensor) -> Tensor:
        """L_u: contrast between the replayed images."""
        return self.instance_loss(features, labels, losses.replay_instance_loss)

    def instance_loss(
        self,
        features: Tensor,
        labels: Tensor,
        official: Callable[[Tensor, Tensor, float], Tensor],
    ) -> Tensor:
        """Contrast between images of equal class and equal rotation."""
        settings = self.settings
        rotated = rotated_labels(labels, settings.rotations, self.network.classes)
        similarity = self.similarity(features)
        if settings.instance_loss == "official":
            return official(similarity, rotated, settings.instance_temperature)
        return losses.supervised_contrast(
            similarity, rotated.repeat(2), settings.instance_temperature
        ).sum()

    def new_prototypes(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """L_new: contrast between prototypes of the un-rotated new images, block 0 of each view."""
        settings = self.settings
        if not settings.new_prototypes:
            return {}
        first, second = (view[: len(labels)] for view in self.embed(features).chunk(2))
        loss, _, _ = losses.prototype_contrast(
            first, second, labels, self.network.classes, settings.prototype_temperature
        )
        return {"ope_new": loss}

    def replay_prototypes(self, images: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """L_seen: contrast between the prototypes of un-mixed replay; they become Q."""
        settings = self.settings
        if not settings.seen_prototypes and not settings.mixup:
            return {}
        with torch.set_grad_enabled(settings.seen_prototypes):
            views = torch.cat([self.first_view(images), self.vary(images)])
            first, second = self.embed(self.encode(views)).chunk(2)
        classes, temperature = self.network.classes, settings.prototype_temperature
        loss, *means = losses.prototype_contrast(first, second, labels, classes, temperature)
        self.prototypes = torch.stack(means).mean(dim=0).detach()
        if not settings.seen_prototypes:
            return {}
        if settings.seen_without_new:
            old = self.progress.classes_before_task
            loss, *_ = losses.prototype_contrast(first, second, labels, old, temperature)
        return {"ope_seen": loss}

    def replay_cross_entropy(self, replay: Mixture, new: Tensor, labels: Tensor) -> Tensor:
        """L_CE on mixed replay, and on the new images where the setting asks for it."""
        if self.settings.cross_entropy == "replay":
            logits = self.classify(self.vary(replay.images))
            return losses.mixup_cross_entropy(logits, replay.first, replay.second, replay.weight)
        both = feedback.joined(feedback.unmixed(new, labels), replay)
        logits = self.classify(self.vary(both.images))
        if self.settings.cross_entropy == "both":
            return losses.mixup_cross_entropy(logits, both.first, both.second, both.weight)
        of_new, of_replay = torch.split(logits, [len(labels), len(replay.first)])
        return cross_entropy(of_new, labels) + losses.mixup_cross_entropy(
            of_replay, replay.first, replay.second, replay.weight
        )

    def grow(self, classes: int) -> None:
        """Widen the classifier and the table of prototypes."""
        super().grow(classes)
        missing = self.network.classes - len(self.prototypes)
        self.prototypes = torch.cat(
            [self.prototypes, self.prototypes.new_zeros(missing, self.prototypes.shape[1])]
        )
