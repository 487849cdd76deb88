"""purefit: a training run is a pure function."""

__version__ = "0.1.0"
