"""Collectives for TensorFlow: `import horovod_tf.tensorflow as hvd`."""

import importlib
from typing import Any as _Any

from horovod_tf import __version__ as __version__
from horovod_tf.common.builds import ccl_built as ccl_built
from horovod_tf.common.builds import cuda_built as cuda_built
from horovod_tf.common.builds import ddl_built as ddl_built
from horovod_tf.common.builds import gloo_built as gloo_built
from horovod_tf.common.builds import gloo_enabled as gloo_enabled
from horovod_tf.common.builds import mpi_built as mpi_built
from horovod_tf.common.builds import mpi_enabled as mpi_enabled
from horovod_tf.common.builds import nccl_built as nccl_built
from horovod_tf.common.builds import rocm_built as rocm_built
from horovod_tf.tensorflow import gradients as gradients
from horovod_tf.tensorflow.aggregation import LocalGradientAggregationHelper as LocalGradientAggregationHelper
from horovod_tf.tensorflow.collectives import allreduce as allreduce
from horovod_tf.tensorflow.collectives import barrier as barrier
from horovod_tf.tensorflow.collectives import grouped_allgather as grouped_allgather
from horovod_tf.tensorflow.collectives import grouped_allreduce as grouped_allreduce
from horovod_tf.tensorflow.collectives import grouped_reducescatter as grouped_reducescatter
from horovod_tf.tensorflow.collectives import reducescatter as reducescatter
from horovod_tf.tensorflow.compression import Compression as Compression
from horovod_tf.tensorflow.consistency import ConsistencyHook as ConsistencyHook
from horovod_tf.tensorflow.consistency import check_consistency as check_consistency
from horovod_tf.tensorflow.functions import broadcast_global_variables as broadcast_global_variables
from horovod_tf.tensorflow.functions import broadcast_variables as broadcast_variables
from horovod_tf.tensorflow.hooks import BroadcastGlobalVariablesHook as BroadcastGlobalVariablesHook
from horovod_tf.tensorflow.in_place import broadcast_ as broadcast_
from horovod_tf.tensorflow.mpi_ops import ProcessSet as ProcessSet
from horovod_tf.tensorflow.mpi_ops import add_process_set as add_process_set
from horovod_tf.tensorflow.mpi_ops import allgather as allgather
from horovod_tf.tensorflow.mpi_ops import alltoall as alltoall
from horovod_tf.tensorflow.mpi_ops import broadcast as broadcast
from horovod_tf.tensorflow.mpi_ops import cross_rank as cross_rank
from horovod_tf.tensorflow.mpi_ops import cross_size as cross_size
from horovod_tf.tensorflow.mpi_ops import global_process_set as global_process_set
from horovod_tf.tensorflow.mpi_ops import init as init
from horovod_tf.tensorflow.mpi_ops import is_homogeneous as is_homogeneous
from horovod_tf.tensorflow.mpi_ops import is_initialized as is_initialized
from horovod_tf.tensorflow.mpi_ops import join as join
from horovod_tf.tensorflow.mpi_ops import local_rank as local_rank
from horovod_tf.tensorflow.mpi_ops import local_size as local_size
from horovod_tf.tensorflow.mpi_ops import mpi_threads_supported as mpi_threads_supported
from horovod_tf.tensorflow.mpi_ops import rank as rank
from horovod_tf.tensorflow.mpi_ops import remove_process_set as remove_process_set
from horovod_tf.tensorflow.mpi_ops import shutdown as shutdown
from horovod_tf.tensorflow.mpi_ops import size as size
from horovod_tf.tensorflow.mpi_ops import start_timeline as start_timeline
from horovod_tf.tensorflow.mpi_ops import status as status
from horovod_tf.tensorflow.mpi_ops import stop_timeline as stop_timeline
from horovod_tf.tensorflow.objects import allgather_object as allgather_object
from horovod_tf.tensorflow.objects import broadcast_object as broadcast_object
from horovod_tf.tensorflow.objects import broadcast_object_fn as broadcast_object_fn
from horovod_tf.tensorflow.optimizer import DistributedOptimizer as DistributedOptimizer
from horovod_tf.tensorflow.reductions import Adasum as Adasum
from horovod_tf.tensorflow.reductions import Average as Average
from horovod_tf.tensorflow.reductions import Max as Max
from horovod_tf.tensorflow.reductions import Min as Min
from horovod_tf.tensorflow.reductions import Product as Product
from horovod_tf.tensorflow.reductions import Sum as Sum
from horovod_tf.tensorflow.tape import DistributedGradientTape as DistributedGradientTape
from horovod_tf.tensorflow.tape import PartialDistributedGradientTape as PartialDistributedGradientTape
from horovod_tf.tensorflow.topology import local_rank_op as local_rank_op
from horovod_tf.tensorflow.topology import local_size_op as local_size_op
from horovod_tf.tensorflow.topology import process_set_included_op as process_set_included_op
from horovod_tf.tensorflow.topology import rank_op as rank_op
from horovod_tf.tensorflow.topology import size_op as size_op


def __getattr__(name: str) -> _Any:
    """What needs Keras, which takes seconds to import, is imported when it is asked for."""
    if name == "SyncBatchNormalization":
        return importlib.import_module("horovod_tf.tensorflow.sync_batch_norm").SyncBatchNormalization
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
