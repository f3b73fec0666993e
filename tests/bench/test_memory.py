"""What paging must save and may cost at most, counted and not timed."""

from bench.lengths import ALPACA, SHAREGPT
from bench.memory import chat_hit_rate, saved_by_parallel_sampling, waste


def test_less_than_one_slot_in_twenty_five_is_wasted_on_chats():
    assert waste(SHAREGPT, num_requests=100) < 0.04


def test_later_turns_of_a_chat_compute_nothing_again():
    assert chat_hit_rate(num_sessions=4) >= 0.99


def test_samples_share_their_prompt():
    assert 0.04 < saved_by_parallel_sampling(ALPACA, 4, num_requests=100) < 0.15
    assert 0.16 < saved_by_parallel_sampling(SHAREGPT, 4, num_requests=50) < 0.31


def test_lengths_have_the_published_means():
    lengths = SHAREGPT.samples(20_000)
    assert abs(sum(i for i, _ in lengths) / 20_000 / SHAREGPT.mean_input - 1) < 0.05
    assert abs(sum(o for _, o in lengths) / 20_000 / SHAREGPT.mean_output - 1) < 0.1
    assert lengths == SHAREGPT.samples(20_000)
