"""Visits on copies of one folder."""

import shutil

import pytest

from walks import opened


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """A folder whose user has labelled 10 posts and has the new release; and what it shows."""
    folder = tmp_path_factory.mktemp("shipped")
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
def walk(tmp_path):
    walk = opened(tmp_path)
    yield walk
    walk.close()


@pytest.fixture(scope="module")
def replaced(shipped, tmp_path_factory):
    """A walk after the release, for all tests of a file: each leaves it on the new backbone."""
    walk = opened(shutil.copytree(shipped[0], tmp_path_factory.mktemp("replaced") / "walk"))
    yield walk
    walk.close()
