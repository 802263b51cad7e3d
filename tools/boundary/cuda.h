#error "the core must not include <cuda.h>: only its leaf may (docs/architecture.md, layers)"
