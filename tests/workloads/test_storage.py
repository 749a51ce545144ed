"""Reading from storage: every byte once a call, cold verified, no half-written data taken for whole, and faults as rows."""

import errno
import os
import resource
import shutil
import sys
import tempfile
from pathlib import Path

import front_door
import pytest
import shared_hosts
import torch

import dlbench
from dlbench.harness.worker import parent, user
from dlbench.testing import ManualClock, set_up
from dlbench.workloads import storage

pytestmark = pytest.mark.skipif(not hasattr(os, "O_DIRECT"), reason="reads as Linux does")
SMALL = {"files": "one", "order": "sequential", "cache": "cold", "samples": 5, "sample_bytes": 8192}


def is_on_a_disk(place):
    """Whether files can be made there that the page cache gives up, as those of a file system in memory are not, and read past it."""
    try:
        with tempfile.NamedTemporaryFile(dir=place) as file:
            file.write(bytes(1 << 16))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(os.open(file.name, os.O_RDONLY | os.O_DIRECT))
            return storage.resident_share([file.name]) == 0
    except OSError:
        return False


@pytest.fixture(scope="module")
def disk():
    """The checkout's folder, or one that can be written where that can't: the system's temporary one may lie in memory."""
    places = (front_door.ROOT, tempfile.gettempdir(), sys.prefix, "/var/tmp")  # noqa: S108  # it outlives a reboot, so it is on a disk
    if found := next(filter(is_on_a_disk, places), None):
        return Path(found)
    pytest.skip("no folder on a disk can be written")


@pytest.fixture
def folder(disk):
    found = disk / f".storage-{os.getpid()}"
    found.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parent, "_folder", found)
        yield found
    shutil.rmtree(found, ignore_errors=True)


@pytest.mark.parametrize("files", ["one", "many"])
@pytest.mark.parametrize("order", ["sequential", "random"])
@pytest.mark.parametrize(("access", "cache"), [("read", "cold"), ("read", "warm"), ("mmap", "cold"), ("mmap", "warm"), ("direct", "cold")])
def test_a_call_reads_each_byte_once_from_where_it_says(folder, monkeypatch, files, order, access, cache):
    got = []
    for name in ("read_by_mapping", "reader_with"):
        real = getattr(storage, name)

        def noting(path, reads, read):
            for each in reads:
                read(path, [each])
                got.append((path, each[0], bytes(each[1][0])))

        noted = (lambda flags, real=real: lambda path, reads: noting(path, reads, real(flags))) if name == "reader_with" else None
        monkeypatch.setattr(storage, name, noted or (lambda path, reads, real=real: noting(path, reads, real)))
    work = set_up("storage", **{**SMALL, "files": files, "order": order, "access": access, "cache": cache})
    got.clear()
    if cache == "cold":
        work.before()
        assert storage.resident_share([str(path) for path in files_in(folder)]) == 0
    work.call()
    assert work.report(ManualClock()) == {"resident": 0.0 if cache == "cold" else 1.0}
    assert (work.items, work.bytes) == (5, 5 * 8192)
    assert b"".join(data for *_, data in sorted(got)) == b"".join(path.read_bytes() for path in files_in(folder))
    assert (got == sorted(got)) is (order == "sequential")


def files_in(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_cases_share_what_was_written_whole_and_nothing_else(folder):
    set_up("storage", **SMALL)
    (file,) = files_in(folder)
    first = file.read_bytes()
    set_up("storage", **{**SMALL, "order": "random"})
    assert file.read_bytes() == first
    file.write_bytes(b"torn")
    set_up("storage", **SMALL)
    assert file.stat().st_size == len(first)
    (folder / "unfinished").mkdir()  # of a case that was killed
    set_up("storage", **{**SMALL, "files": "many"})
    assert sorted(path.name for path in folder.iterdir()) == ["many-5-8192", "one-5-8192"]


@pytest.mark.parametrize("access", ["read", "mmap", "direct"])
def test_a_file_that_is_removed_or_cut_under_the_reader_ends_the_case_with_a_sentence(folder, access):
    work = set_up("storage", **SMALL, access=access)
    os.truncate(files_in(folder)[0], 4096)
    with pytest.raises(OSError, match="has lost bytes since it was written"):
        work.call()
    shutil.rmtree(folder)
    for action in (work.before, work.call, lambda: set_up("storage", **SMALL)):
        with pytest.raises(FileNotFoundError, match="No such file"):
            action()


def test_a_read_that_gives_less_than_a_whole_file_has_blames_no_other_process(folder, monkeypatch):
    """Such as the 2 GiB that Linux reads at once at most."""
    work, usual = set_up("storage", **{**SMALL, "files": "many"}), os.preadv
    monkeypatch.setattr(os, "preadv", lambda descriptor, buffers, offset: usual(descriptor, [buffers[0][:4096]], offset))
    with pytest.raises(OSError, match=r"^a read of .*0000000 gave 4,096 of 8,192 bytes, and the file has them all; .* reads in parts$"):
        work.call()
    monkeypatch.setattr(storage, "MOST_READ_BYTES", 8191)
    with pytest.raises(NotImplementedError, match=r"^Linux reads 8191 bytes at once at most, and a sample has 8192; see access=mmap$"):
        set_up("storage", **{**SMALL, "order": "random"})
    for params in ({"order": "random", "access": "mmap"}, {}):  # in order, reads of one file are smaller than a sample may be
        monkeypatch.setattr(storage, "SEQUENTIAL_BYTES", 4096)
        set_up("storage", **{**SMALL, **params}).call()


@pytest.mark.parametrize(("model", "size"), [("resnet18", 3 * 224 * 224 * 4), ("odd", 3 * 4 + 2 * 8)])
def test_samples_of_a_network_are_as_large_as_its_inputs(folder, monkeypatch, model, size):
    def odd():
        return torch.nn.Linear(3, 3)

    monkeypatch.setattr(user, "_networks", {})
    dlbench.network(example=lambda batch: {"a": torch.zeros(batch, 3), "b": torch.zeros(batch, 2, dtype=torch.long)})(odd)
    work = set_up("storage", **{name: value for name, value in SMALL.items() if name != "sample_bytes"}, model=model)
    assert (work.items, work.bytes) == (5, 5 * size)
    work.call()


def test_too_little_memory_for_a_warm_cache_and_no_direct_reads_are_said(folder, monkeypatch):
    work = set_up("storage", **SMALL, access="direct")

    def refuse(*_):
        raise OSError(errno.EINVAL, "Invalid argument")

    for name in ("open", "preadv"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, refuse)
            with pytest.raises(NotImplementedError, match="past the page cache"):
                work.call()
    monkeypatch.setattr("dlbench.harness.probe.linux.available_memory", lambda: 40_000)
    with pytest.raises(MemoryError, match=r"to lie in the page cache, the data takes"):
        set_up("storage", **{**SMALL, "order": "random", "cache": "warm"})


def test_what_stays_in_the_page_cache_is_said_and_not_measured(folder, monkeypatch):
    work = set_up("storage", **SMALL)
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    monkeypatch.setattr(storage, "PAUSE_S", 0)
    work.call()
    with pytest.raises(NotImplementedError, match=r"^100\.0% of the data stays in the page cache"):
        work.before()
    warm = set_up("storage", **{**SMALL, "cache": "warm"})
    monkeypatch.undo()
    storage.evict([str(path) for path in files_in(folder)])
    with pytest.raises(NotImplementedError, match=r"only 0\.0% of the data was still"):
        warm.report(ManualClock())


def test_a_disk_that_fills_while_it_is_written_to_leaves_nothing(folder):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, before[1]))
    try:
        with pytest.raises(OSError, match=r"files of 40,960 bytes can't be written in .*: File too large; name another folder by path"):
            set_up("storage", **SMALL)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(folder.iterdir())


BENCH = 'workload = "storage"\naxes.files = "many"\naxes.order = "random"\naxes.cache = "cold"\naxes.samples = 3\naxes.sample_bytes = 4096'


def test_a_place_that_cannot_be_written_is_told_before_the_first_case(folder, tmp_path):
    (tmp_path / "file").write_text("")
    for place, why in (("file", "Not a directory"), ("nowhere", "No such file or directory")):
        suite = front_door.suite(tmp_path, f"{BENCH}\naxes.path = {[str(folder), place]}")
        done = shared_hosts.dlbench("run", suite, "--rounds", "1", "-o", "o.jsonl", cwd=tmp_path)
        sentence = f"dlbench: path={place}: no folder can be made there: {why}; name a folder that can be written\n"
        assert (done.code, done.out, done.err) == (2, "", sentence)
        assert not (tmp_path / "o.jsonl").exists()
