"""Collectives for data-parallel training with TensorFlow. Importing this loads nothing native."""

from horovod_tf._alias import install_as_horovod as install_as_horovod
from horovod_tf._version import __version__ as __version__
