"""Scikit-learn estimators, for pipelines, searches and other tools."""

from lamu.sklearn.graph_estimator import FactorAnalysis, GaussianMixture, TopicModel
from lamu.sklearn.loading import load
from lamu.sklearn.supervised import BayesianClassifier, BayesianRegressor

__all__ = ["BayesianClassifier", "BayesianRegressor", "FactorAnalysis", "GaussianMixture", "TopicModel", "load"]
