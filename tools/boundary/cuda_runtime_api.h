#error "the core must not include <cuda_runtime_api.h>: only its leaf may (docs/architecture.md, layers)"
