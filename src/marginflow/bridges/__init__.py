"""Other people's models: networks from PyTorch, estimators for scikit-learn. Neither is imported before it is used."""

from marginflow._core.contents import lazy

lazy(__name__)
