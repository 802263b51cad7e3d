"""The same as `horovod_tf.keras.callbacks`."""

from horovod_tf.keras.callbacks import BroadcastGlobalVariablesCallback as BroadcastGlobalVariablesCallback
from horovod_tf.keras.callbacks import EarlyStopping as EarlyStopping
from horovod_tf.keras.callbacks import LearningRateScheduleCallback as LearningRateScheduleCallback
from horovod_tf.keras.callbacks import LearningRateWarmupCallback as LearningRateWarmupCallback
from horovod_tf.keras.callbacks import MetricAverageCallback as MetricAverageCallback
