import pytest
from stand_in import Device, build


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    return build(tmp_path_factory.mktemp("driver"))


@pytest.fixture
def device(library, monkeypatch):
    found = Device(library)
    found.note_compiled(monkeypatch)
    yield found
    assert found.errors == []
