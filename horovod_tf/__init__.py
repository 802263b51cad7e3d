"""Collectives for data-parallel training with TensorFlow. Importing this loads nothing native."""

from horovod_tf._version import __version__ as __version__
