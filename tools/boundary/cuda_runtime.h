#error "the core must not include <cuda_runtime.h>: only its leaf may (docs/architecture.md, layers)"
