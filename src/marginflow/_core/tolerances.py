"""Every tolerance of the library, each with where it comes from. A tolerance that acts is always reported."""

import numpy as np

EPS = float(np.finfo(np.float64).eps)

# A certified margin interval is closed when (upper - lower) / upper is below this. Active-set polish on a
# non-degenerate support set reaches about 1e-15; 1e-9 leaves room for condition numbers up to 1e6.
MARGIN_GAP = 1e-9

# A row counts as a support example when its constraint value is within this of 1 (normal form y w.x >= 1).
SUPPORT = 1e-7
