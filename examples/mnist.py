"""The main job: train a small network on MNIST and read digits that it has never seen."""

import argparse

import purefit as pf


def main(argv: list[str] | None = None) -> pf.Run:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="use so many training examples only")
    options = parser.parse_args(argv)

    digits = pf.datasets.mnist()
    train = pf.Data(digits.train.x[: options.limit], digits.train.y[: options.limit])
    run = pf.fit(pf.mlp(256, 128), train, valid=digits.test, epochs=options.epochs, seed=0)
    print(f"test accuracy {run.history['test_accuracy'][-1]:.4f}")

    logits = pf.predict(run, digits.test.x[:10])
    print("predicted", logits.argmax(axis=-1))
    print("true     ", digits.test.y[:10])
    return run


if __name__ == "__main__":
    main()
