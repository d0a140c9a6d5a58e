"""marginflow: what gradient training converges to, why, and how you know.

The table of contents is `__init__.pyi`; nothing heavy is imported until a name is used.
"""

from marginflow._core.contents import lazy
from marginflow._core.version import __version__ as __version__

lazy(__name__)
