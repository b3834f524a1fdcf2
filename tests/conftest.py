"""One torch thread for all tests: small tensors gain nothing from two, and several processes share the cores."""

from __future__ import annotations

import hypothesis
import torch

torch.set_num_threads(1)
# a busy machine is no fault of the code
hypothesis.settings.register_profile("patient", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("patient")
