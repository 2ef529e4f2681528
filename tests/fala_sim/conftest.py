import pytest

import warm


@pytest.fixture(scope="session")
def warm_jobs():
    """Let the laboratory's jobs be copies of a process that has imported what they score with."""
    warm.processes()
