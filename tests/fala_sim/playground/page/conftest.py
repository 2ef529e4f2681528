"""Visits on copies of one folder."""

import shutil

import pytest

from visits import opened


@pytest.fixture(scope="session")
def shipped(tmp_path_factory):
    """A folder whose user has labelled 6 posts and has the new release; and what it shows."""
    folder = tmp_path_factory.mktemp("shipped")
    visit = opened(folder)
    for post in range(6):
        visit.label(post, post % 2)
    before = visit.view
    visit.ship()
    visit._worker._thread.join()
    after = visit.view
    visit.close()
    return folder, before, after


@pytest.fixture
def visit(tmp_path):
    visit = opened(tmp_path)
    yield visit
    visit.close()


@pytest.fixture(scope="module")
def replaced(shipped, tmp_path_factory):
    """A visit after the release, for all tests of a file: each leaves it on the new backbone."""
    visit = opened(shutil.copytree(shipped[0], tmp_path_factory.mktemp("replaced") / "visit"))
    yield visit
    visit.close()
