import pathlib
import sys

# The stack of real processes, and streams that check themselves.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))


def pytest_addoption(parser):
    parser.addoption("--chaos-seconds", type=float, default=60, help="how long processes are killed under load")
    parser.addoption("--chaos-seed", type=int, default=1, help="decides who is killed when, and what is asked")
