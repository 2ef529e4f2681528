"""What the tests of prompts share."""

import pytest


@pytest.fixture
def folder(path):
    return path
