"""Data-parallel training with Keras: `import horovod_tf.keras as hvd`."""

from horovod_tf import __version__ as __version__
from horovod_tf.common.basics import init as init
from horovod_tf.common.basics import is_initialized as is_initialized
from horovod_tf.common.basics import local_rank as local_rank
from horovod_tf.common.basics import local_size as local_size
from horovod_tf.common.basics import mpi_threads_supported as mpi_threads_supported
from horovod_tf.common.basics import rank as rank
from horovod_tf.common.basics import shutdown as shutdown
from horovod_tf.common.basics import size as size
from horovod_tf.keras.optimizer import DistributedOptimizer as DistributedOptimizer
