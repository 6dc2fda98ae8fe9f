"""A server that only a Prefect profile names is not used, and the user is told."""

import pytest

from mortal.server.select_server import server_of_profile

PROFILES = """
active = "cloud"

[profiles.ephemeral]
PREFECT_SERVER_ALLOW_EPHEMERAL_MODE = true

[profiles.cloud]
PREFECT_API_URL = "https://api.prefect.cloud/api/accounts/a/workspaces/w"
"""


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.delenv("PREFECT_PROFILES_PATH", raising=False)
    monkeypatch.delenv("PREFECT_PROFILE", raising=False)
    (tmp_path / "profiles.toml").write_text(PROFILES)
    return tmp_path


def test_the_server_of_the_active_profile_is_named_with_the_remedy():
    told = server_of_profile()
    assert "Prefect profile 'cloud'" in told
    assert "PREFECT_API_URL=https://api.prefect.cloud/api/accounts/a/workspaces/w" in told


@pytest.mark.parametrize("name", ["ephemeral", "gone"])
def test_a_profile_without_a_server_is_passed_over(name, monkeypatch):
    monkeypatch.setenv("PREFECT_PROFILE", name)
    assert server_of_profile() is None


@pytest.mark.parametrize("content", [None, "active = [", 'active = "cloud"'])
def test_what_is_wrong_with_the_file_is_for_prefect_to_say(content, home):
    (home / "profiles.toml").unlink()
    if content is not None:
        (home / "profiles.toml").write_text(content)
    assert server_of_profile() is None
