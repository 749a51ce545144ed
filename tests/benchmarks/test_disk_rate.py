"""The benchmark of storage against fio runs and says what it found."""

import shutil

import pytest

from benchmarks import disk_rate


def test_disk_rate_reads_one_file_with_both(printed, monkeypatch, tmp_path):
    fio = tmp_path / "fio"
    fio.write_text("""#!/bin/sh\necho '{"jobs": [{"read": {"bw_bytes": 1e9}}]}'\n""")
    fio.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda name: str(fio))
    warm = "warm, in order"  # past the page cache not every file system can be read
    monkeypatch.setattr(disk_rate, "PATTERNS", {warm: disk_rate.PATTERNS[warm]})
    table, verdict = printed(disk_rate, "--pairs", "1", "--seconds", "0.001", "--path", str(tmp_path))
    assert [(row[0], row[2]) for row in table] == [("one file", "fio"), (warm, "1.00 GB/s")]
    assert " of 1 pairs are at most " in verdict


def test_disk_rate_says_where_there_is_no_fio(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(SystemExit, match="there is no fio here"):
        disk_rate.main([])
