"""The chain of views of CCL-DC with one learner, which teaches itself.

Wang et al., CVPR 2024. An image is shown in four views, each more augmented than the one before,
and the learner distils what it makes of the harder view into the easier one.
"""

from onpro.methods.parts.chain import ChainLoss, ChainSettings
from onpro.methods.registry import register_wrapper
from onpro.recipes import CHAIN, CHAIN_DATA, CHAIN_ON_SHORT_STREAMS


@register_wrapper(
    "chain",
    ChainSettings,
    title="a distillation chain",
    paper="Improving Plasticity in Online Continual Learning via Collaborative Learning",
    year=2024,
    images_per_step="296 more",
    bases=CHAIN,
    data=CHAIN_DATA,
    bases_on=CHAIN_ON_SHORT_STREAMS,
)
class SelfTaught(ChainLoss):
    """L + w·Σ_s CE(x_s) + λ·[Σ_{s<3} KL(x_{s+1}→x_s) + KL(x₃→x₃)]; the last KL is 0."""
