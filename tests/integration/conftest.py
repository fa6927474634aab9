import pytest
from stack import Stack


@pytest.fixture
def make_stack(tmp_path):
    """Makes stacks of one's own, with flags; all are killed at the end."""
    stacks = []

    def make(**kwargs) -> Stack:
        folder = tmp_path / f"stack{len(stacks)}"
        folder.mkdir()
        stacks.append(Stack(folder, **kwargs))
        return stacks[-1].start_all()

    yield make
    for stack in stacks:
        stack.stop()


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    """One stack for all tests of a module that leave it as they found it."""
    result = Stack(tmp_path_factory.mktemp("stack")).start_all()
    yield result
    result.stop()


@pytest.fixture(scope="module")
def client(stack):
    from openai import OpenAI

    return OpenAI(base_url=stack.base_url + "/v1", api_key="none", max_retries=0, timeout=120)
