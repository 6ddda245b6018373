"""A calibrated classifier in a scikit-learn pipeline, beside the forest that it replaces.

Columns are scaled and completed by scikit-learn, the last step is `lamu.sklearn.BayesianClassifier` with a linear model
and Laplace's method, and everything around it is scikit-learn's too: the search over priors, cross-validation, the
log loss. Printed are the log loss and the accuracy of both on the folds, and what the posterior knows beyond
probabilities: how much of the doubt about the most doubtful rows more data would remove.

    python examples/sklearn_pipeline.py
"""

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import GridSearchCV, cross_validate, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import lamu
from lamu.sklearn import BayesianClassifier

x, y = (np.array(part) for part in lamu.data.load("breast_cancer"))
x[np.random.default_rng(0).random(x.shape) < 0.05] = np.nan  # one value in twenty is missing
x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.25, random_state=0, stratify=y)

linear = BayesianClassifier(
    network=lamu.networks.Linear(),
    prior=lamu.priors.Normal(1.0),
    algorithm=lamu.algorithms.laplace(),
    random_state=0,
)
pipeline = make_pipeline(SimpleImputer(), StandardScaler(), linear)
priors = {"bayesianclassifier__prior": [lamu.priors.Normal(scale) for scale in (0.1, 0.3, 1.0)]}
search = GridSearchCV(pipeline, priors, scoring="neg_log_loss", cv=3).fit(x_train, y_train)
forest = make_pipeline(SimpleImputer(), RandomForestClassifier(random_state=0))

print(f"chosen prior: {search.best_params_['bayesianclassifier__prior']}\n\n{'':24}  log loss  accuracy")
for name, each in (("random forest", forest), ("Bayesian linear model", search.best_estimator_)):
    found = cross_validate(each, x_train, y_train, cv=5, scoring=("neg_log_loss", "accuracy"))
    print(f"{name:24}  {-found['test_neg_log_loss'].mean():8.3f}  {found['test_accuracy'].mean():8.3f}")

best = search.best_estimator_
pred = best[-1].posterior_.predict(best[:-1].transform(x_test))
doubtful = np.argsort(-np.asarray(pred.total))[:5]
print(f"\ntest rows: accuracy {best.score(x_test, y_test):.3f}; the most doubtful of them, in nats:")
for row in doubtful:
    print(f"  row {row:3d}: {pred.total[row]:.2f}, of which more data would remove {pred.epistemic[row]:.2f}")
