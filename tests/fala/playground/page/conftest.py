"""Walks on copies of one folder, whose releases are made once."""

import shutil

import pytest

from walks import make_folder, opened


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """A folder with releases, and what its making told."""
    folder = tmp_path_factory.mktemp("walk") / "made"
    return folder, make_folder(folder)


@pytest.fixture(scope="session")
def shipped(made, tmp_path_factory):
    """A folder whose user has labelled 10 posts and has the new release; and what it shows."""
    folder = shutil.copytree(made[0], tmp_path_factory.mktemp("walk") / "shipped")
    walk = opened(folder)
    for post in range(10):
        walk.label(post, post % 2)
    before = walk.view
    walk.ship()
    walk._worker._thread.join()
    after = walk.view
    walk.close()
    return folder, before, after


@pytest.fixture
def folder(made, tmp_path):
    return shutil.copytree(made[0], tmp_path / "walk")


@pytest.fixture
def walk(folder):
    walk = opened(folder)
    yield walk
    walk.close()


@pytest.fixture(scope="module")
def replaced(shipped, tmp_path_factory):
    """A walk after the release, for all tests of a file: each leaves it on the new backbone."""
    walk = opened(shutil.copytree(shipped[0], tmp_path_factory.mktemp("replaced") / "walk"))
    yield walk
    walk.close()
