"""What the library's errors become. Each also belongs to the builtin class that callers would look for."""


class Error(Exception):
    """Anything that the library reports."""


class UsageError(Error, ValueError):
    """Something impossible was asked for: a size of 100x100, zero steps, an array of the wrong shape."""


class BadInputError(Error):
    """A file is broken, or is not what it should be."""


class OutOfMemoryError(Error, MemoryError):
    """The model or the picture does not fit in memory."""


class CannotWriteError(Error, OSError):
    """The output cannot be written."""


class Interrupted(Error):
    """The drawing was stopped."""
