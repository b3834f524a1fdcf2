"""The functional twins of the criterion modules, as `torch.nn.functional` is to `torch.nn`."""

from reweigh.criterion.functional import binary_derivative_manipulation, derivative_manipulation

__all__ = ["binary_derivative_manipulation", "derivative_manipulation"]
