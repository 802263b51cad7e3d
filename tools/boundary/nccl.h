#error "the core must not include <nccl.h>: only its leaf may (docs/architecture.md, layers)"
