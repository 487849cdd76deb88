"""Regression: how far diabetes has gone after a year, from ten measurements, against ridge.

442 patients, a quarter of them for testing. Inputs and target are scaled by the training part;
R2 is the share of the target's variance that is explained. Needs `pip install 'purefit[data]'`.
"""

import argparse

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import purefit as pf


def main(argv: list[str] | None = None) -> tuple[float, float]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    x, y = load_diabetes(return_X_y=True, scaled=False)
    parts = train_test_split(x, y[:, None], test_size=0.25, random_state=0)
    x_train, x_test, y_train, y_test = parts
    x_train, y_train = x_train[: options.limit], y_train[: options.limit]
    inputs, target = StandardScaler().fit(x_train), StandardScaler().fit(y_train)
    train = (inputs.transform(x_train), target.transform(y_train))
    test = (inputs.transform(x_test), target.transform(y_test))

    run = pf.fit(
        pf.mlp(32),
        train,
        valid=test,
        loss="mean_squared_error",
        optimizer="adamw",
        learning_rate=3e-3,
        weight_decay=1.0,
        dropout=0.2,
        batch_size=32,
        epochs=options.epochs,
        progress="none",
    )
    ours = r2_score(test[1], pf.predict(run, test[0]))
    ridge = RidgeCV(np.logspace(-2, 3, 20)).fit(*train)
    theirs = r2_score(test[1], ridge.predict(test[0]))
    print(f"R2 on {len(x_test)} test patients: network {ours:.3f}, ridge {theirs:.3f}")
    return ours, theirs


if __name__ == "__main__":
    main()
