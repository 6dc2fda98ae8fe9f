"""mortal_steps.system.distributions: which distribution has which package."""

import importlib.metadata

from mortal_steps.system.distributions import packages_distributions


def test_each_package_is_found_in_the_distributions_that_importlib_names():
    ours = packages_distributions()
    for package, distributions in importlib.metadata.packages_distributions().items():
        assert sorted(ours[package]) == sorted(distributions)


def test_a_distribution_without_lists_of_its_content_is_no_obstacle(tmp_path, monkeypatch):
    folder = tmp_path / "bare-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: bare\nVersion: 1.0\n\nText\n")
    wheel = tmp_path / "listed-1.0.dist-info"
    wheel.mkdir()
    (wheel / "METADATA").write_text("Name: Listed\nVersion: 1.0\n\nName: other\n")
    record = ["alone.py,,", "folder/deep/module.py,,", '"with, comma/module.py",,', "../bin/it,,"]
    (wheel / "RECORD").write_text("\n".join(record))
    monkeypatch.syspath_prepend(tmp_path)
    found = packages_distributions()
    assert found["alone"] == found["folder"] == ["Listed"]
    assert "bare" not in found and ".." not in found
