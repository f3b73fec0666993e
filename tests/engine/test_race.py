"""Draws by racing exponentials, against the distributions they must have."""

import numpy as np
import pytest
import torch

from engine.race import CHUNK, draw, exponentials
from engine.randomness import token_seed

SEEDS = [token_seed(1, position) for position in range(20_000)]
MASK = 2**64 - 1


def split_mix_64(seed, count):
    """The reference generator, one number after another."""
    for _ in range(count):
        seed = (seed + 0x9E3779B97F4A7C15) & MASK
        z = seed
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        yield z ^ (z >> 31)


def test_numbers_are_those_of_split_mix_64():
    seeds = [0, 7, 2**63 + 5, MASK]
    expected = [[-np.log(((z >> 12) + 0.5) / 2**52) for z in split_mix_64(seed, 5)] for seed in seeds]
    np.testing.assert_array_equal(exponentials(seeds, 5), expected)
    assert next(split_mix_64(1234567, 1)) == 6457827717110365317  # published with the generator


def test_numbers_are_exponential_and_independent():
    numbers = exponentials(SEEDS[:1000], 100)
    counts, _ = np.histogram(np.exp(-numbers), bins=20, range=(0, 1))
    # Chi-square with 19 degrees of freedom: above 43.8 once in a thousand.
    assert ((counts - 5000) ** 2 / 5000).sum() < 43.8
    for one, other in ((numbers[:, 1:], numbers[:, :-1]), (numbers[1:], numbers[:-1])):
        correlation = ((one - 1) * (other - 1)).mean()
        assert abs(correlation) < 5 / np.sqrt(one.size)


@pytest.mark.parametrize("num_outcomes", [1, 5, CHUNK, CHUNK + 1, 4 * CHUNK - 3])
def test_winners_are_distributed_as_the_weights(num_outcomes):
    weights = torch.rand(num_outcomes, generator=torch.Generator().manual_seed(0)) + 0.05
    weights[0] = num_outcomes / 2
    drawn = draw(weights.expand(len(SEEDS), -1).contiguous(), SEEDS)
    expected = (weights.double() / weights.double().sum()).numpy() * len(SEEDS)
    counts = np.bincount(drawn, minlength=num_outcomes)
    # The sum has a mean of one less than the number of outcomes, and twice that for a variance.
    degrees = num_outcomes - 1
    assert ((counts - expected) ** 2 / expected).sum() <= degrees + 4 * np.sqrt(2 * degrees)


def test_the_winner_depends_on_seed_and_weights_only():
    weights = torch.rand(50, 1000)
    together = draw(weights, SEEDS[:50]).tolist()
    assert together == [draw(weights[i : i + 1], [SEEDS[i]]).item() for i in range(50)]
    assert together == draw(weights * 1024, SEEDS[:50]).tolist()


def test_outcomes_without_weight_never_win():
    weights = torch.zeros(500, 700)
    weights[:, 333] = 1e-30
    assert draw(weights, SEEDS[:500]).unique().tolist() == [333]


def test_improbable_winners_are_as_steady_as_probable_ones():
    """Half of the mass lies on 20,000 outcomes. In a cumulative sum this change would move each by one place."""
    weights = torch.ones(2000, 20_001)
    weights[:, 0] = 20_000.0
    changed = weights.clone()
    changed[:, 0] *= 1 + 1e-4
    before, after = draw(weights, SEEDS[:2000]), draw(changed, SEEDS[:2000])
    assert 900 < (before > 0).sum() < 1100
    assert (before != after).sum() <= 1


def test_rows_of_nan_give_an_outcome_all_the_same():
    assert 0 <= draw(torch.full((1, 300), torch.nan), [1]).item() < 300
