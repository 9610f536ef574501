/* The schema, as protoc wrote it: <build>/generated/descriptors.bin, found on the include path.
 * Read by orchestrator/descriptors.c. */
#ifdef __CET__
/* One object without this note would take control-flow protection from the whole program. */
#include <cet.h>
#endif

    .section .rodata
    .globl descriptors_start
    .type descriptors_start, %object
descriptors_start:
    .incbin "descriptors.bin"
    .size descriptors_start, . - descriptors_start
    .globl descriptors_end
    .type descriptors_end, %object
descriptors_end:
    .size descriptors_end, 0

    .section .note.GNU-stack, "", %progbits
