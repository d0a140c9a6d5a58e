"""Data sets: the record, the families of the papers, and files."""

from marginflow.data.catalogue import load as load
from marginflow.data.catalogue import register as register
from marginflow.data.dataset import Dataset as Dataset
from marginflow.data.families import chizat2020 as chizat2020
from marginflow.data.families import gaussian_mixture as gaussian_mixture
from marginflow.data.families import phuong2021 as phuong2021
from marginflow.data.sklearn_digits import digits as digits
