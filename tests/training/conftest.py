import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))
torch.set_num_threads(1)
