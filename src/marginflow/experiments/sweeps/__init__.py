"""Sweeps: a grid, a list or random draws of runs, on one machine or a cluster, that survive being killed."""

from marginflow.experiments.sweeps.drive import Sweep as Sweep
from marginflow.experiments.sweeps.drive import sweep as sweep
from marginflow.experiments.sweeps.folder import load as load
from marginflow.experiments.sweeps.spec import Spec as Spec
from marginflow.experiments.sweeps.spec import read as read
from marginflow.experiments.sweeps.spec import spec as spec
