"""One generator per purpose, all from one seed, none from torch's global state."""

import pytest
import torch
from scipy import stats
from torch import Tensor

from onpro.randomness import Generators, beta, derive_seed

CPU = torch.device("cpu")


def draw(generators: Generators, purpose: str, count: int = 5) -> Tensor:
    return torch.rand(count, generator=generators[purpose])


def test_a_derived_seed_depends_on_the_seed_and_the_purpose() -> None:
    assert derive_seed(3, "memory") == derive_seed(3, "memory")
    seeds = {derive_seed(seed, purpose) for seed in range(20) for purpose in ("a", "b", "ab")}
    assert len(seeds) == 60


def test_a_derived_seed_fits_any_generator() -> None:
    assert all(0 <= derive_seed(seed, "memory") < 2**63 for seed in (0, 1, 2**63 - 1))


def test_seed_and_number_do_not_run_into_each_other() -> None:
    assert derive_seed(1, "2/x") != derive_seed(12, "/x")


def test_equal_seeds_draw_equal_numbers_and_others_do_not() -> None:
    first, second, other = Generators(0, CPU), Generators(0, CPU), Generators(1, CPU)
    assert torch.equal(draw(first, "memory"), draw(second, "memory"))
    assert not torch.equal(draw(first, "mixup"), draw(other, "mixup"))


def test_purposes_do_not_disturb_each_other() -> None:
    alone, beside = Generators(0, CPU), Generators(0, CPU)
    draw(beside, "mixup", 100)
    first = draw(beside, "memory")
    draw(beside, "mixup", 100)
    assert torch.equal(torch.cat([first, draw(beside, "memory")]), draw(alone, "memory", 10))
    assert not torch.equal(draw(alone, "mixup"), draw(Generators(0, CPU), "memory"))


def test_a_saved_state_goes_on_where_it_was() -> None:
    source = Generators(0, CPU)
    draw(source, "memory", 7)
    state = {purpose: position.clone() for purpose, position in source.state_dict().items()}
    expected = draw(source, "memory"), draw(source, "mixup")
    resumed = Generators(0, CPU)
    draw(resumed, "memory", 3)
    draw(resumed, "mixup", 3)
    resumed.load_state_dict(state)
    assert torch.equal(draw(resumed, "memory"), expected[0])
    assert torch.equal(draw(resumed, "mixup"), expected[1]), "first used after the save"


@pytest.mark.parametrize("concentration", [0.4, 1.0, 3.0])
def test_beta_samples_have_the_beta_distribution(concentration: float) -> None:
    samples = beta(concentration, 5000, torch.Generator().manual_seed(0)).double()
    found = stats.kstest(samples.numpy(), stats.beta(concentration, concentration).cdf)
    assert found.pvalue > 1e-3


def test_beta_samples_depend_on_the_generator_alone() -> None:
    first, second, other = (beta(0.4, 7, torch.Generator().manual_seed(s)) for s in (3, 3, 4))
    assert first.shape == (7,)
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_beta_of_a_tiny_concentration_is_finite() -> None:
    samples = beta(1e-4, 1000, torch.Generator().manual_seed(0))
    assert samples.isfinite().all()
    assert ((samples >= 0) & (samples <= 1)).all()
