"""How much memory is left: of the machine, or of a container with less."""

import pytest

from mortal_steps.system import resources


@pytest.fixture
def machine(tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 1000 kB\nHugePages_Free: 0\n")
    monkeypatch.setattr(resources, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(resources, "CGROUPS", tmp_path)
    return tmp_path


def test_a_machine_without_limits_gives_what_it_has(machine):
    assert resources.available_bytes() == 1_024_000
    (machine / "memory.max").write_text("max\n")
    (machine / "memory.current").write_text("5\n")
    assert resources.available_bytes() == 1_024_000


def test_a_container_gives_its_limit_and_what_files_take_of_it(machine):
    (machine / "memory.max").write_text("5000\n")
    (machine / "memory.current").write_text("4000\n")
    assert resources.available_bytes() == 1000
    (machine / "memory.stat").write_text("anon 1\ninactive_file 700\n")
    assert resources.available_bytes() == 1700
    (machine / "memory.current").write_text("9000\n")
    assert resources.available_bytes() == 0


def test_another_system_does_not_tell(machine):
    (machine / "meminfo").unlink()
    assert resources.available_bytes() is None
