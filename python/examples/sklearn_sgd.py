"""Logistic regression of scikit-learn, by federated averaging.

python3 sklearn_sgd.py              trains with four workers on this machine
python3 sklearn_sgd.py HOST:PORT    is a worker of that server
pstrain server --process 'python3 sklearn_sgd.py -' --learning-rate 1
"""

import sys

import pstrain
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier

X, y = load_digits(return_X_y=True)
estimator = SGDClassifier(loss="log_loss", learning_rate="constant", eta0=0.01)
task = pstrain.partial_fit(estimator, X / 16, y, steps=2)

if __name__ == "__main__":
    if sys.argv[1:]:
        pstrain.run(sys.argv[1], task)
    else:
        print(pstrain.train(task, workers=4, epochs=10))
        print("accuracy", estimator.score(X / 16, y))
