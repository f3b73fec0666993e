"""Shapes that hypothesis draws; apart from the other cases, which do without it."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.kernels.cases import Case


@st.composite
def odd_cases(draw: st.DrawFn, max_context_len: int = 200) -> Case:
    """Whatever a model and a scheduler may bring."""
    lengths = st.integers(1, max_context_len).flatmap(lambda c: st.tuples(st.integers(0, min(c, 40)), st.just(c)))
    num_kv_heads = draw(st.integers(1, 3))
    return Case(
        rows=tuple(draw(st.lists(lengths, max_size=4))),
        num_heads=num_kv_heads * draw(st.integers(1, 5)),
        num_kv_heads=num_kv_heads,
        head_dim=draw(st.sampled_from((32, 40, 64, 72, 80, 96, 128))),
        block_size=draw(st.sampled_from((8, 16, 24, 32, 64))),
        sliding_window=draw(st.none() | st.integers(1, max_context_len)),
        soft_cap=draw(st.none() | st.floats(1.0, 50.0)),
    )
