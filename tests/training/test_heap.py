"""Freed memory stays with the process; measured in a process of its own, for it changes all of one."""

import platform
import subprocess
import sys

import pytest

_FAULTS = """
import resource, sys
from legenda.training.heap import keep_heap
if sys.argv[1] == "kept":
    keep_heap()
import torch
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(2**24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(4):  # it takes up to three to make room
    faults()
print(faults())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told so")
def test_a_large_tensor_s_memory_is_there_for_the_next():
    """64 MB are 16,384 pages of 4 kB, each of which is fetched anew by glibc as it comes."""

    def faults(mode: str) -> int:
        run = subprocess.run([sys.executable, "-c", _FAULTS, mode], capture_output=True, text=True, check=True)
        return int(run.stdout)

    assert faults("kept") < 100 < faults("as it comes")
