"""Tests of the workload, without a run."""

import torch

from dlbench.testing import set_up


def test_there_is_an_output_for_each_new_token() -> None:
    assert set_up("decode_attention", seq=16, batch=2, heads=4, kv_heads=2, width=8).call().shape == (2, 4, 1, 8)


def test_each_head_attends_with_the_keys_and_values_that_it_shares() -> None:
    work = set_up("decode_attention", seq=16, heads=4, kv_heads=2, width=8, dtype="fp64")
    q, k, v = work.inputs
    k, v = (each.repeat_interleave(2, dim=1) for each in (k, v))  # heads 0 and 1 share the first, 2 and 3 the second
    expected = torch.softmax(q @ k.mT / 8**0.5, dim=-1) @ v
    torch.testing.assert_close(work.call(), expected)


def test_the_counts_are_those_of_the_mathematics() -> None:
    work = set_up("decode_attention", seq=16, batch=2, heads=4, kv_heads=2, width=8)
    # A head of a sequence: 16 products of 8 numbers for the scores, and 8 sums of 16 for the output, two operations each.
    assert work.flops == 2 * 4 * (16 * 8 + 8 * 16) * 2
    # fp32: keys and values of 2 x 2 x 16 x 8 numbers each, query and output of 2 x 4 x 8.
    assert work.bytes == 4 * (2 * 512 + 2 * 64)
    assert work.items == 2
