"""The device library on a GPU: the checks that the emulated targets get."""

import pytest
import torch
from device_atomics import TYPES, check_contended, check_handing_on, check_neighbours, check_special_floats
from device_clock import check_clocks
from device_wave import SHAPES, check_block, check_masks, check_wave
from device_wave import TYPES as WAVE_TYPES
from machine import Machine

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture
def on():
    return Machine("cuda")


def test_clocks(on):
    check_clocks(on)


@pytest.mark.parametrize("name", TYPES)
def test_contended_atomics(on, name):
    check_contended(on, name)


@pytest.mark.parametrize("name", ["float", "double", "wmma::half_t", "wmma::bf16_t"])
def test_special_floats_in_atomics(on, name):
    check_special_floats(on, name)


def test_atomics_of_neighbours(on):
    check_neighbours(on)


def test_atomics_hand_on(on):
    check_handing_on(on)


@pytest.mark.parametrize("name", WAVE_TYPES)
def test_reductions_and_scans_of_warps(on, name):
    check_wave(on, name)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reductions_and_scans_of_blocks(on, shape):
    check_block(on, shape)


def test_masks_votes_and_matches(on):
    check_masks(on)
