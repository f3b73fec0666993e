"""Numbers that depend on what they are for, and on nothing else."""

from itertools import product

from engine.randomness import sequence_seed, token_seed


def test_numbers_are_fixed_for_ever():
    """A stored response must go on with the same text after an upgrade."""
    assert token_seed(0, 0) == 14829174331184096279
    assert token_seed(42, 1000) == 1184504549853259217
    assert sequence_seed(42, 1) == 10004445831333113801


def test_each_seed_and_position_has_its_own_number():
    assert len({token_seed(seed, position) for seed, position in product(range(100), range(100))}) == 10_000


def test_the_first_sequence_has_the_request_s_own_seed_and_others_have_others():
    seeds = [sequence_seed(1, i) for i in range(64)]
    assert seeds[0] == 1
    assert len(set(seeds)) == 64


def test_every_seed_that_is_allowed_works():
    for seed in (-(2**63), -1, 0, 2**63, 2**64 - 1):
        assert 0 <= token_seed(sequence_seed(seed, 3), 10**6) < 2**64
