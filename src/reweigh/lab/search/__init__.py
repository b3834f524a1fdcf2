"""Hyperparameter search whose trials are ordinary runs (extra `search`)."""

from reweigh.errors import require

require("optuna", extra="search")  # before the imports below, for a readable error

from reweigh.lab.search.outcome import Outcome, TrialResult, read_outcome  # noqa: E402
from reweigh.lab.search.plan import Plan, plan_search  # noqa: E402
from reweigh.lab.search.search import search  # noqa: E402
from reweigh.lab.search.space import Space, parse_space  # noqa: E402

__all__ = ["Outcome", "Plan", "Space", "TrialResult", "parse_space", "plan_search", "read_outcome", "search"]
