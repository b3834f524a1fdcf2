"""The criterion's two passes as Triton kernels; chosen automatically, turned off by REWEIGH_KERNELS=off.

`usable` says whether a call can take them; `margin` is `reweigh.direction.margin` for any weighting, `margin_and_push`
the same without autograd. `whole` is the entire criterion for a weighting that a kernel can weigh by itself,
`once_more` the same for a batch like one before, `weighed` the passes around any other. Triton is imported on first
use.
"""

from reweigh.kernels.choice import margin, margin_and_push, once_more, rescale, usable, weighed, whole

__all__ = ["margin", "margin_and_push", "once_more", "rescale", "usable", "weighed", "whole"]
