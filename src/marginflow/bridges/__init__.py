"""Other people's models: networks from PyTorch, estimators for scikit-learn. Neither is imported before it is used."""

from marginflow._core.contents import lazy

lazy(
    __name__,
    {
        "TwoNeuronClassifier": ("marginflow.bridges.estimators", "TwoNeuronClassifier"),
        "F1MaxMarginClassifier": ("marginflow.bridges.estimators", "F1MaxMarginClassifier"),
        "F2MaxMarginClassifier": ("marginflow.bridges.estimators", "F2MaxMarginClassifier"),
        "Certificate": ("marginflow.bridges.certificate", "Certificate"),
    },
)
