"""The package's version; the native library carries the same one, which loading it verifies."""

__version__ = "0.1.0"
