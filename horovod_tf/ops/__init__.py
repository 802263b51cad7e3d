"""TensorFlow's operations: libhorovod_tf_ops.so, which `horovod_tf.tensorflow` loads."""
