"""Max-margin problems with primal, dual and a certified interval, and KKT residuals (theory §2-§5)."""

from marginflow.margins.base import Margin as Margin
from marginflow.margins.leaky import LeakyMargin as LeakyMargin
from marginflow.margins.leaky import leaky as leaky
from marginflow.margins.linear import linear as linear
from marginflow.margins.linear import negative as negative
from marginflow.margins.linear import positive as positive
