"""Max-margin problems with primal, dual and a certified interval, and KKT residuals (theory §2-§5)."""

from marginflow.margins.base import Margin as Margin
from marginflow.margins.f1 import F1Margin as F1Margin
from marginflow.margins.f1 import f1 as f1
from marginflow.margins.f1 import f1_finite as f1_finite
from marginflow.margins.f2 import f2 as f2
from marginflow.margins.f2 import f2_finite as f2_finite
from marginflow.margins.inner import InnerMax as InnerMax
from marginflow.margins.inner import inner_max as inner_max
from marginflow.margins.kkt import KKT as KKT
from marginflow.margins.kkt import kkt as kkt
from marginflow.margins.kkt import kkt_from_gradients as kkt_from_gradients
from marginflow.margins.leaky import LeakyMargin as LeakyMargin
from marginflow.margins.leaky import leaky as leaky
from marginflow.margins.linear import linear as linear
from marginflow.margins.linear import negative as negative
from marginflow.margins.linear import positive as positive
