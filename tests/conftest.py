"""Settings for all tests: one torch thread, because tensors are small, and no Hypothesis deadline."""

from __future__ import annotations

import hypothesis
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("no-deadline", hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("no-deadline")
