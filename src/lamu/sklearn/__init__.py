"""Scikit-learn estimators, for pipelines, searches and other tools."""

from lamu.sklearn.graph_estimator import FactorAnalysis, GaussianMixture, TopicModel
from lamu.sklearn.supervised import BayesianClassifier, BayesianRegressor, load

__all__ = ["BayesianClassifier", "BayesianRegressor", "FactorAnalysis", "GaussianMixture", "TopicModel", "load"]
