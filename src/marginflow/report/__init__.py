"""Figures and pages. Draws records; computes nothing and imports no science."""

from marginflow.report.page import Chart as Chart
from marginflow.report.page import Page as Page
from marginflow.report.page import Picture as Picture
from marginflow.report.page import Scatter as Scatter
from marginflow.report.page import Section as Section
from marginflow.report.page import render as render
from marginflow.report.page import write as write
from marginflow.report.run_page import run_page as run_page
