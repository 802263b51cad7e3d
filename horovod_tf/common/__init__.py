"""The native core and its Python face, `horovod_tf.common.basics`."""
