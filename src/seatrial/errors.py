"""The one exception tree. Each class carries the exit code that the process ends with.

SeatrialError                     70  internal error
├── UsageError                     2  wrong command line, settings or input file: the user can mend it
│   └── SettingsError              2  a settings file or an override is wrong
├── IntegrityError                76  data or a checkpoint is not what its manifest says
├── Preempted                     75  saved on request; run the same command again to go on
└── ImpossibleConfiguration       78  will never work as configured, so a scheduler must not retry
"""


class SeatrialError(Exception):
    """Base of every error seatrial raises on purpose."""

    exit_code = 70


class UsageError(SeatrialError):
    """The user can mend it; the message says what was wrong, where, and what to do, in one line."""

    exit_code = 2


class SettingsError(UsageError):
    """A settings file or a ``key=value`` override is wrong."""


class IntegrityError(SeatrialError):
    """Data or a checkpoint on disk is not what its manifest says."""

    exit_code = 76


class Preempted(SeatrialError):
    """Stopped on request after saving; the same command resumes."""

    exit_code = 75


class StoppedAtOnce(Preempted):
    """Stopped on request where there was nothing to save; the same command does it again."""


class ImpossibleConfiguration(SeatrialError):
    """Retrying cannot help."""

    exit_code = 78


EXIT_VERDICT_FAIL = 1
EXIT_INCONCLUSIVE = 3
