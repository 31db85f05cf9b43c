"""Students that are served."""

import pytest

import shipped_models
from darkbayes.shipped import Shipped


@pytest.fixture(scope="package")
def shipped(tmp_path_factory):
    """Students by the names of their schemas, made when they are asked for."""
    folder = tmp_path_factory.mktemp("models")

    class Students(dict):
        def __missing__(self, name):
            self[name] = Shipped(shipped_models.write(folder / name, name))
            return self[name]

    return Students()
