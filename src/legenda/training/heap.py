"""The memory of the C library, which training on CPUs asks for and gives back thousands of times a second."""

import ctypes

# parameters of mallopt, glibc's malloc.h
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4


def keep_heap() -> None:
    """Has glibc keep what this process has freed, for its next tensors.

    As it comes, glibc fetches every block of more than 32 MB from the system, which clears it page by page, and gives
    it back as soon as it is free: arithmetic on large tensors then takes more than twice as long. Other C libraries are
    left as they are. What was needed at most stays with the process until it ends.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for parameter, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, 2**31 - 1), (_TOP_PAD, 2**26)):
        mallopt(parameter, value)
