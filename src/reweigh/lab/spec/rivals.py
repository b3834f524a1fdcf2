"""The arguments of losses and methods with their defaults, so that ELR and ELR(3, 0.7) are one run.

Without torch: a test holds this table equal to the classes themselves.
"""

from __future__ import annotations

from types import EllipsisType

from reweigh.lab.spec.expression import Expression, Value

ARGUMENTS: dict[str, dict[str, Value | EllipsisType]] = {
    "LabelSmoothing": {"epsilon": 0.1, "sl_compat": False},
    "BootstrapSoft": {"beta": 0.95},
    "BootstrapHard": {"beta": 0.8},
    "Forward": {"T": ...},
    "Backward": {"T": ..., "clip": 1e-07},
    "LogitAdjustment": {"tau": 1},
    "BalancedSoftmax": {},
    "NCE_RCE": {"alpha": 1, "beta": 1, "A": -9.210340371976182},
    "NCE_AGCE": {"alpha": 1, "beta": 4, "a": 6, "q": 1.5},
    "ANL_CE": {"alpha": 5, "beta": 5},
    "LogitClip": {"tau": 1},
    "FullMAE": {},
    "Brier": {},
    "ClassBalanced": {"beta": 0.9999},
    "LDAM": {"max_margin": 0.5, "scale": 30, "drw_at": None, "beta": 0.9999},
    "OHEM": {"keep": 0.5},
    "SelfPaced": {"percentile": 0.7, "decay": 0.5, "threshold": None, "growth": 1.3, "divide_by": "batch"},
    "SPCL": {"percentile": 0.7, "gamma": 1, "decay": 0.5, "threshold": None, "growth": 1.3, "divide_by": "batch"},
    "ActiveBias": {"form": "variance", "warm_up": 15, "epsilon": 0.2, "mean_over": "set"},
    "PrunedGCE": {"q": 0.7, "k": 0.5, "start": 40, "every": 10},
    "LearningToReweight": {"clean_batch": 100},
    "MetaWeightNet": {
        "hidden": 100,
        "meta_lr": 0.001,
        "meta_decay": 0.0001,
        "inner_lr": None,
        "clean_batch": 100,
        "normalise": False,
    },
    "D2L": {"start": 40, "window": 5, "k": 20},
    "MentorNetPD": {
        "percentile": 0.75,
        "decay": 0.5,
        "mentor": "formula",
        "mentor_steps": 30_000,
        "example_dropout": ((0.5, 17), (0.05, 83)),
    },
    "MentorNetDD": {
        "percentile": 0.8,
        "decay": 0.5,
        "q": 0.9,
        "burn_in": 18,
        "example_dropout": ((0.5, 17), (0.05, 83)),
        "noise": 0.2,
        "dump_epochs": 50,
        "dump_lr": 0.05,
        "mentor_steps": 30_000,
    },
    "SAdaptation": {"kind": "simple", "warm_up": 10, "beta": 0, "noise": 0.1, "top": None},
    "Masking": {
        "mask": ...,
        "warm_up": 10,
        "lr": 1e-05,
        "estimate": "confusion",
        "pretrain": 10_000,
        "clip": None,
        "average": 0.9999,
    },
    "MDYRH": {"warm_up": 105, "alpha": 32, "eta": 1},
    "MDDYRSH": {"warm_up": 105, "soft_from": 110, "cooling": 89, "alpha": 32, "eta": 1},
    "CoTeaching": {"forget_rate": ..., "warm_up": 10, "exponent": 1},
    "Decoupling": {"warm_up": 0},
    "SIGUA": {"forget_rate": ..., "gamma": 0.01, "rate": 0.3, "warm_up": 10},
    "SIGUABC": {"T": ..., "gamma": 1, "warm_up": 0},
    "ProSelfLC": {"B": 10, "transit": 0.5, "detach": False},
    "ELR": {"lam": 3, "beta": 0.7, "half": False},
    "ANL": {"alpha": 5, "beta": 5, "delta": 5e-05},
    "OSMCAA": {"alpha": 1.2, "sigma": 0.8, "temperature": 0.18, "lam": 0.5, "cce": 1},
    "DRSA": {"frames": 6, "diversity": 1, "over": "batch", "scale": 30, "momentum": 0.5},
    "CAE": {"frames": 8, "oim": 1, "pair": 10, "negatives": 3, "scale": 30, "momentum": 0.5},
    "SoftLabels": {"file": ..., "hash": None},
    "JointLabels": {"file": ..., "alpha": 1.2, "beta": 0.8, "begin": 70, "slots": 10, "prior": "uniform"},
    "Curriculum": {"file": ..., "hash": None, "start": 0.3, "until": 0.5, "end": 1, "pacing": "linear"},
}
"""An argument without a default has dots in its place."""

TIMES: dict[str, dict[str, int]] = {
    "LDAM": {"drw_at": 0},
    "ActiveBias": {"warm_up": 0},
    "PrunedGCE": {"start": 0, "every": 1},
    "D2L": {"start": 0, "window": 2},
    "SAdaptation": {"warm_up": 0},
    "Masking": {"warm_up": 0},
    "MDYRH": {"warm_up": 0},
    "MDDYRSH": {"warm_up": 0, "soft_from": 0, "cooling": 1},
    "CoTeaching": {"warm_up": 0},
    "Decoupling": {"warm_up": 0},
    "SIGUA": {"warm_up": 0},
    "SIGUABC": {"warm_up": 0},
    "JointLabels": {"begin": 1, "slots": 1},
}
"""The arguments that count epochs or iterations of the run, with the least that each may be.

Not those of trainings beside it (mentor_steps, dump_epochs, pretrain), nor parts of the run (burn_in, transit, until).
"""


def without_defaults(expression: Expression) -> Expression:
    """The shortest way to say it: no argument that has its default, the first ones without their names.

    What is added to a loss or method with a default then renames no run; weightings, whose few numbers people look
    for, have theirs written out.

    >>> from reweigh.lab.spec import parse
    >>> print(without_defaults(parse("ELR(lam=3, beta=0.7)")), without_defaults(parse("D2L(start=34, k=10)")))
    ELR D2L(34, k=10)
    """
    defaults = ARGUMENTS[expression.name]
    given = dict(expression.bind(tuple(defaults)).kwargs)
    args, kwargs = list[Value](), list[tuple[str, Value]]()
    for place, (key, default) in enumerate(defaults.items()):
        if key not in given or _same(given[key], default):
            continue
        if len(args) == place:
            args.append(given[key])
        else:
            kwargs.append((key, given[key]))
    return Expression(expression.name, tuple(args), tuple(kwargs))


def times_sooner(expression: Expression, share: float) -> Expression:
    """A method for a training of a `share` of the iterations: its epochs and iterations shrink with it, rounded down.

    What begins within the whole training then begins within the short one.

    >>> from reweigh.lab.spec import parse
    >>> print(times_sooner(parse("D2L(start=34)"), 0.25), times_sooner(parse("ELR(lam=1)"), 0.25))
    D2L(8, 2) ELR(lam=1)
    """
    if expression.name not in TIMES:
        return expression
    defaults = ARGUMENTS[expression.name]
    given = dict(expression.bind(tuple(defaults)).kwargs)
    for key, least in TIMES[expression.name].items():
        time = given.get(key, defaults[key])
        if isinstance(time, int) and time > least:
            given[key] = max(least, int(time * share + 1e-9))  # 100 * 0.29 is not quite 29
    return without_defaults(Expression(expression.name, (), tuple(given.items())))


def _same(value: Value, default: Value | EllipsisType) -> bool:
    return value == default and isinstance(value, bool) == isinstance(default, bool)  # 0 is no False
