"""One torch thread for all tests: small tensors gain nothing from two, and several processes share the cores."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
