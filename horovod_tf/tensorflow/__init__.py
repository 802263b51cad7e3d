"""Collectives for TensorFlow: `import horovod_tf.tensorflow as hvd`."""

from horovod_tf import __version__ as __version__
from horovod_tf.tensorflow import gradients as gradients
from horovod_tf.tensorflow.collectives import allreduce as allreduce
from horovod_tf.tensorflow.collectives import grouped_allreduce as grouped_allreduce
from horovod_tf.tensorflow.consistency import ConsistencyHook as ConsistencyHook
from horovod_tf.tensorflow.consistency import check_consistency as check_consistency
from horovod_tf.tensorflow.functions import broadcast_global_variables as broadcast_global_variables
from horovod_tf.tensorflow.functions import broadcast_variables as broadcast_variables
from horovod_tf.tensorflow.hooks import BroadcastGlobalVariablesHook as BroadcastGlobalVariablesHook
from horovod_tf.tensorflow.mpi_ops import allgather as allgather
from horovod_tf.tensorflow.mpi_ops import broadcast as broadcast
from horovod_tf.tensorflow.mpi_ops import cross_rank as cross_rank
from horovod_tf.tensorflow.mpi_ops import cross_size as cross_size
from horovod_tf.tensorflow.mpi_ops import init as init
from horovod_tf.tensorflow.mpi_ops import is_homogeneous as is_homogeneous
from horovod_tf.tensorflow.mpi_ops import is_initialized as is_initialized
from horovod_tf.tensorflow.mpi_ops import local_rank as local_rank
from horovod_tf.tensorflow.mpi_ops import local_size as local_size
from horovod_tf.tensorflow.mpi_ops import mpi_threads_supported as mpi_threads_supported
from horovod_tf.tensorflow.mpi_ops import rank as rank
from horovod_tf.tensorflow.mpi_ops import shutdown as shutdown
from horovod_tf.tensorflow.mpi_ops import size as size
from horovod_tf.tensorflow.mpi_ops import status as status
from horovod_tf.tensorflow.optimizer import DistributedOptimizer as DistributedOptimizer
