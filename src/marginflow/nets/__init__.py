"""Nets, activations and initial weights."""

from marginflow.nets import inits as inits
from marginflow.nets.activations import Activation as Activation
from marginflow.nets.activations import activation as activation
from marginflow.nets.activations import leaky as leaky
from marginflow.nets.activations import linear as linear
from marginflow.nets.activations import relu as relu
from marginflow.nets.activations import smooth_leaky as smooth_leaky
from marginflow.nets.activations import srelu as srelu
from marginflow.nets.net import Net as Net
from marginflow.nets.two_layer import TwoLayer as TwoLayer
