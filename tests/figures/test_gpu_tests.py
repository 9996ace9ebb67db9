"""Tests for a device are found by the script that runs them there, in one run over all folders."""

import pytest

import gpu_tests


@pytest.mark.slow
def test_all_of_them_are_found_in_one_run():
    done = gpu_tests.run([*gpu_tests.FOLDERS, "--collect-only", "-q"], TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stdout[-2000:]
    assert "test_network.py" in done.stdout
