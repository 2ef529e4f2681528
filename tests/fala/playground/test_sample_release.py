"""``fala.sample_release``: made once, of the models that come with the package."""

import shutil

import pytest

import fala
from fala.playground import releases


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Both, by a user whose cache folder cannot be written."""
    folder = tmp_path_factory.mktemp("home")
    (folder / "file").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(releases, "user_cache_path", lambda *_, **__: folder / "file" / "cache")
        return {name: fala.sample_release(name) for name in releases.NAMES}


def test_they_are_releases_with_words_and_a_bridge(made):
    old, new = (fala.Bundle.open(made[name]) for name in ("glove", "bert"))
    for bundle in (old, new):
        assert (bundle.manifest.task, bundle.manifest.labels) == ("classification", ("0", "1"))
        assert bundle.head().lexical is not None
    assert list(new.bridges()) == [old.backbone_digest]


def test_a_device_begins_with_one_and_is_replaced_by_the_other(made, tmp_path):
    with fala.Device.create(tmp_path / "device", made["glove"]) as device:
        device.learn(["you absolute clown", "lovely film"], [1, 0])
        report = device.replace(made["bert"], fala.Budget(0))
        assert (report.old, report.new, report.forward_passes) == ("glove", "bert", 0)
        assert device.predict(["what a clown"]).shape == (1, 2)


def test_what_is_kept_whole_is_not_made_again(made, tmp_path, monkeypatch):
    monkeypatch.setattr(releases, "user_cache_path", lambda *_, **__: tmp_path)
    kept = tmp_path / made["glove"].parent.name
    folder = tmp_path / f"{fala.__version__}-{releases._MADE}"
    assert kept.name != folder.name  # the temporary folder has a name of its own
    folder.mkdir()
    for file in made.values():
        shutil.copy(file, folder)
    before = (folder / "glove.fala").stat().st_mtime_ns
    assert fala.sample_release("glove") == folder / "glove.fala"
    assert (folder / "glove.fala").stat().st_mtime_ns == before
    with (folder / "bert.fala").open("r+b") as file:
        file.truncate(1_000_000)
    assert not releases._whole(folder / "bert.fala")


def test_a_mistaken_name_is_told_with_the_names():
    with pytest.raises(fala.DataError, match="no sample release 'word2vec'; one of glove, bert"):
        fala.sample_release("word2vec")
