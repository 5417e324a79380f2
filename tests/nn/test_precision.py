"""Which float32 convolutions are exact, and which may be rounded to TF32."""

import threading
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from torch.nn.functional import conv2d

from onpro.nn import convolutions, float32_by_default


def switch() -> str:
    cudnn: Any = torch.backends.cudnn  # whose types know no `conv`
    return str(cudnn.conv.fp32_precision)


def test_the_switch_is_left_as_it_was_found() -> None:
    found = switch()
    with convolutions("ieee"):
        assert switch() == "ieee"
    with convolutions("tf32"):
        assert switch() == "tf32"
    assert switch() == found
    with pytest.raises(KeyError), convolutions("ieee"):
        raise KeyError
    assert switch() == found


def test_exactness_wins_whoever_comes_first() -> None:
    with convolutions("tf32"):
        with convolutions("ieee"):
            assert switch() == "ieee"
        assert switch() == "tf32"
    with convolutions("ieee"), convolutions("tf32"):
        assert switch() == "ieee"


def test_a_thread_that_leaves_does_not_spoil_the_exactness_of_another() -> None:
    found = switch()
    entered, left = threading.Event(), threading.Event()

    def other() -> None:
        with convolutions("ieee"):
            entered.set()
            left.wait()

    thread = threading.Thread(target=other)
    with ExitStack() as mine:
        mine.enter_context(convolutions("ieee"))
        thread.start()
        entered.wait()
    assert switch() == "ieee"
    left.set()
    thread.join()
    assert switch() == found


def test_the_default_dtype_is_float32_until_the_last_thread_leaves() -> None:
    entered, left = threading.Event(), threading.Event()

    @float32_by_default()
    def other() -> None:
        entered.set()
        left.wait()

    thread = threading.Thread(target=other)
    torch.set_default_dtype(torch.float64)
    try:
        with float32_by_default():
            thread.start()
            entered.wait()
        assert torch.get_default_dtype() == torch.float32
        left.set()
        thread.join()
        assert torch.get_default_dtype() == torch.float64
        with pytest.raises(KeyError), float32_by_default():
            raise KeyError
        assert torch.get_default_dtype() == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_computes_as_the_switch_says() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 64, 16, 16, generator=generator, dtype=torch.float64)
    weights = torch.randn(64, 64, 3, 3, generator=generator, dtype=torch.float64)
    truth = conv2d(images, weights)
    on_gpu = images.float().cuda(), weights.float().cuda()
    exact = torch.finfo(torch.float32).eps * 64 * 9  # more than the sums of 576 products lose
    with convolutions("ieee"):
        error = (conv2d(*on_gpu).double().cpu() - truth).abs().max() / truth.abs().max()
    assert error < exact
    if torch.cuda.get_device_capability() >= (8, 0):
        with convolutions("tf32"):
            rounded = (conv2d(*on_gpu).double().cpu() - truth).abs().max() / truth.abs().max()
        assert rounded > 10 * error
