"""Numbers that depend on what they are for, and on nothing else."""

from itertools import pairwise, product

from engine.randomness import sequence_seed, uniform


def test_numbers_are_in_the_unit_interval_and_evenly_spread():
    counts = [0] * 20
    for seed, position in product(range(100), range(200)):
        counts[int(uniform(seed, position) * 20)] += 1
    # Chi-square with 19 degrees of freedom: above 43.8 once in a thousand.
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 43.8


def test_neighbouring_numbers_are_not_correlated():
    by_position = [uniform(7, i) - 0.5 for i in range(10_000)]
    by_seed = [uniform(i, 7) - 0.5 for i in range(10_000)]
    for numbers in (by_position, by_seed):
        correlation = sum(a * b for a, b in pairwise(numbers)) / 10_000 * 12
        assert abs(correlation) < 0.04  # four standard deviations


def test_numbers_are_fixed_for_ever():
    """A stored response must go on with the same text after an upgrade."""
    assert uniform(0, 0) == 0.8038911513018037
    assert uniform(42, 1000) == 0.06421212031349333
    assert sequence_seed(42, 1) == 10004445831333113801


def test_the_first_sequence_has_the_request_s_own_seed_and_others_have_others():
    seeds = [sequence_seed(1, i) for i in range(64)]
    assert seeds[0] == 1
    assert len(set(seeds)) == 64


def test_every_seed_that_is_allowed_works():
    seeds = (-(2**63), -1, 0, 2**63, 2**64 - 1)
    assert all(0 <= uniform(sequence_seed(seed, 3), 10**6) < 1 for seed in seeds)
