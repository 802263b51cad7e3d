#error "the core must not include <mpi.h>: only its leaf may (docs/architecture.md, layers)"
