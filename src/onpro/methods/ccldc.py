"""CCL-DC, collaborative continual learning with a distillation chain.

Wang et al., CVPR 2024. Two peers see an image in four views, each more augmented than the one
before, and each peer learns what the other makes of the harder view.
"""

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
