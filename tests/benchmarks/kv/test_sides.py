from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.kv.sides import SETTINGS, kv_bytes_per_token, ours, theirs

MIB = 2**20


def test_our_server_has_the_memory_and_the_home(tiny_model: Path, tmp_path: Path) -> None:
    side = ours(3 * MIB, tmp_path, ("--context", "512"))
    command = " ".join(side.server.command(side.launch(tiny_model, 2)))
    assert f"--memory {3 * MIB} --context 512" in command and "--api-key-file" not in command
    assert side.environment == {"FIRSTWORD_HOME": str(tmp_path)} and side.fields(1) == {}


def test_the_other_server_gets_what_memory_is_left_as_its_cache(tiny_model: Path) -> None:
    # 2 layers, K and V, 2 heads, 16 values of 2 bytes
    assert kv_bytes_per_token(tiny_model) == 2 * 2 * 2 * 16 * 2
    for name, slots in (("one slot", 1), ("a slot each", 3)):
        side = theirs(name, tiny_model, 65_536, 3, 1000 * MIB)
        command = " ".join(side.server.command(side.launch(tiny_model, 2)))
        assert f"-np {slots} -c {slots * 65_536}" in command
        cache = int(command.split("--cache-ram ")[1].split()[0])
        assert 1000 - 300 - slots * 16 - 2 < cache <= 1000 - 300 - slots * 16
    side = theirs("a slot each, pinned", tiny_model, 65_536, 3, 0)
    assert "--cache-ram 0" in " ".join(side.server.command(side.launch(tiny_model, 2)))
    assert side.fields(2) == {"id_slot": 2}


@pytest.mark.parametrize("name", SETTINGS)
def test_flags_of_a_setting_are_in_its_command(name: str, tiny_model: Path) -> None:
    side = theirs(name, tiny_model, 512, 3, MIB)
    command = side.server.command(side.launch(tiny_model, 2))
    assert set(SETTINGS[name].flags) <= set(command)
