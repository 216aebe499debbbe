"""Listings of any length: each name once, in shards, within a bounded memory."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from legenda.errors import DataError
from legenda.images.shards import index_listing, names_of_shard, write_sorted


@given(
    st.lists(st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\n\0"), min_size=1)),
    st.integers(1, 5),
    st.integers(1, 4),
)
def test_a_listing_holds_each_name_once_and_shards_partition_it(tmp_path_factory, names, size, sort_size):
    folder = tmp_path_factory.mktemp("listing")
    listing, index = folder / "names.txt", folder / "index.bin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("legenda.images.shards._SORT_SIZE", sort_size)
        write_sorted(names, listing)
    if not names:
        with pytest.raises(DataError):
            index_listing(listing, index, size, allow_urls=True)
        return
    counts = index_listing(listing, index, size, allow_urls=True)
    shards = [names_of_shard(listing, index, shard) for shard in range(-(-counts["images"] // size))]
    assert all(len(shard) == size for shard in shards[:-1])
    assert sorted(name for shard in shards for name in shard) == sorted(set(names))
    assert sorted(path.name for path in folder.iterdir()) == ["index.bin", "names.txt"]


def test_a_name_with_a_line_break_cannot_be_listed(tmp_path):
    with pytest.raises(DataError):
        write_sorted(["a\nb.png"], tmp_path / "names.txt")


MILLION = """
import resource, sys
from pathlib import Path
from legenda.images.shards import index_listing, names_of_shard, write_sorted

folder, count, size = Path(sys.argv[1]), 1_000_000, 1_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
names = (f"photographs/of/the/great/archive/{number * 7 % count:09d}.jpg" for number in range(count))
listing, index = folder / "names.txt", folder / "index.bin"
write_sorted(names, listing)
counts = index_listing(listing, index, size, allow_urls=False)
read = sum(len(names_of_shard(listing, index, shard)) for shard in range(counts["images"] // size))
print(read, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_a_million_names(tmp_path):
    """Sorted, indexed and read by shard; as one list of strings they would take 95 MB."""
    command = [sys.executable, "-c", MILLION, str(tmp_path)]
    images, kibibytes = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert images == 1_000_000
    assert (tmp_path / "names.txt").stat().st_size == 47_000_000
    assert kibibytes < 40_000
