"""Table 2 with the net named inception in MentorNet's program: CifarNet, 1.8 million parameters, no batch norm.

python -m paper run paper/experiments/cifar10_cifarnet.py --only "r = 0.4"
"""

from __future__ import annotations

from paper import Experiment, grid
from paper.experiments.cifar10_googlenet import COLUMNS, DIFFERS, rows

EXPERIMENT = Experiment(
    name="cifar10_cifarnet",
    title="Table 2 with CifarNet, MentorNet's student: CIFAR-10, symmetric noise",
    protocol="text",
    cells=grid(COLUMNS, rows("cifarnet")),
    differs="The paper says GoogLeNet V1 as MentorNet trained it. In MentorNet's program that name means this net, "
    "trained by plain SGD for 120,000 iterations of 128. Here it has the paper's optimiser and length. " + DIFFERS,
)
