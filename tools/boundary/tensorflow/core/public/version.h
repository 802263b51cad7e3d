#error "the core must not include TensorFlow's headers: only horovod_tf/ops may (docs/architecture.md, layers)"
