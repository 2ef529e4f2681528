import pytest

import warm


@pytest.fixture(scope="session")
def warm_jobs():
    """Fork the laboratory's jobs from a process that has imported their libraries."""
    warm.processes()
