"""CCL-DC, collaborative continual learning with a distillation chain.

Wang et al., CVPR 2024. Two peers see an image in four views, each more augmented than the one
before, and each peer learns what the other makes of the harder view.
"""

from typing import Any

from onpro.methods.base import Labelled, Terms
from onpro.methods.parts.chain import ChainLoss, ChainSettings
from onpro.methods.parts.peers import Peers
from onpro.methods.registry import register_wrapper
from onpro.recipes import CHAIN, CHAIN_DATA, CHAIN_ON_SHORT_STREAMS


@register_wrapper(
    "ccldc",
    ChainSettings,
    title="two peers and a distillation chain",
    paper="Improving Plasticity in Online Continual Learning via Collaborative Learning",
    year=2024,
    inference="linear head, mean of two learners",
    images_per_step="twice as many, and 592",
    bases=CHAIN,
    data=CHAIN_DATA,
    bases_on=CHAIN_ON_SHORT_STREAMS,
)
class CCLDC(ChainLoss, Peers[ChainSettings]):
    """L + w·Σ_s CE(a(x_s)) + λ·[Σ_{s<3} KL(b(x_{s+1})→a(x_s)) + KL(b(x₃)→a(x₃))], of each peer."""

    def terms(self, *samples: Any) -> Terms:
        """The terms of both peers; of nothing but cross-entropy, one more of the chain."""
        if super().has_plain_loss:
            return self.weighted_plain_terms(self.learners, *samples)
        return super().terms(*samples)

    def added_terms(self, new: Labelled, old: Labelled | None = None, *mixed: Any) -> Terms:
        """The terms of the chain, of both peers."""
        old = self.replayed(old)
        added = super().added_terms(new, old, *mixed)
        return added | self.chain_terms(self.learners, new, old, *mixed)
