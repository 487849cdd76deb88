"""Everything that purefit raises or warns with, as one family.

    PurefitError
    ├── InputError              what was given cannot be used         (exit code 2)
    │   ├── DataError           arrays: lengths, dtypes, values, labels
    │   ├── SettingsError       hyperparameters, plan, saving, command-line flags
    │   ├── ModelError          what came through a model door
    │   ├── MissingExtraError   an optional package is not installed
    │   └── RunFolderError      a run folder: missing, in use, not empty
    │       └── CheckpointError a saved step: damaged, or of another run
    ├── NonFiniteError          the loss became NaN or infinite       (exit code 1)
    ├── SaveError               the disk refused a checkpoint         (exit code 1)
    └── Interrupted             Ctrl-C or SIGTERM, after saving       (exit code 130 or 143)

    PurefitWarning              something that was let through, but should be known

Each message is one sentence of the form *Expected ... got ...; do ...*.
"""

__all__ = [
    "CheckpointError",
    "DataError",
    "InputError",
    "Interrupted",
    "MissingExtraError",
    "ModelError",
    "NonFiniteError",
    "PurefitError",
    "PurefitWarning",
    "RunFolderError",
    "SaveError",
    "SettingsError",
]


class PurefitError(Exception):
    """The root of the family; `exit_code` is what the command line ends with."""

    exit_code: int = 1


class InputError(PurefitError, ValueError):
    """What was given cannot be used."""

    exit_code = 2


class DataError(InputError):
    """Data that do not fit: lengths, dtypes, NaN, labels out of range, nothing there."""


class SettingsError(InputError):
    """A setting that is unknown, out of its range or without effect in this combination."""


class ModelError(InputError):
    """A model that no door accepts, or whose outputs do not fit the loss."""


class MissingExtraError(InputError, ImportError):
    """An optional package is needed and not installed; the message has the command."""


class RunFolderError(InputError):
    """A run folder that is missing, in use by another process, or would be overwritten."""


class CheckpointError(RunFolderError):
    """A saved step that is damaged or belongs to another run."""


class NonFiniteError(PurefitError):
    """The loss became NaN or infinite.

    Attributes:
        step: The step (counted from 0) whose loss was not finite.
        leaf: The first leaf found bad, as a path such as `params['layers'][0]['w']`.
    """

    def __init__(self, message: str, *, step: int, leaf: str) -> None:
        super().__init__(message)
        self.step = step
        self.leaf = leaf


class SaveError(PurefitError):
    """A checkpoint could not be written; those written before are untouched."""


class Interrupted(PurefitError):
    """Ctrl-C or SIGTERM ended the run, after it was saved.

    Attributes:
        signal_number: The signal that came, 2 (SIGINT) or 15 (SIGTERM).
        step: The number of finished steps, the last of them saved where there is a folder.
    """

    def __init__(self, message: str, *, signal_number: int, step: int) -> None:
        super().__init__(message)
        self.signal_number = signal_number
        self.step = step
        self.exit_code = 128 + signal_number


class PurefitWarning(UserWarning):
    """Something that was let through, but should be known."""
