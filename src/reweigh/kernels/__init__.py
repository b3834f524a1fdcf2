"""The criterion's two passes as Triton kernels; chosen automatically, turned off by REWEIGH_KERNELS=off.

`usable` says whether a call can take them; `margin` is `reweigh.direction.margin` for any weighting, `margin_and_push`
the same without autograd, and `whole` the entire criterion for a weighting that a kernel can weigh by itself. Triton is
imported on first use.
"""

from reweigh.kernels.choice import margin, margin_and_push, rescale, usable, whole

__all__ = ["margin", "margin_and_push", "rescale", "usable", "whole"]
