"""Estimators in scikit-learn's manner: for pipelines, searches, and everything else that takes one."""

from lamu.sklearn.classifier import BayesianClassifier
from lamu.sklearn.factor_analysis import FactorAnalysis
from lamu.sklearn.gaussian_mixture import GaussianMixture
from lamu.sklearn.loading import load
from lamu.sklearn.regressor import BayesianRegressor
from lamu.sklearn.topic_model import TopicModel

__all__ = ["BayesianClassifier", "BayesianRegressor", "FactorAnalysis", "GaussianMixture", "TopicModel", "load"]
