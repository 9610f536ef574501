/* Whom the kernel ends first when memory runs out: a command, never the runner. Once, at start. */
#pragma once

#include <stddef.h>

#define OOM_RUNNER_SCORE (-900) /* of -1000 to 1000, see proc(5) */
#define OOM_TEXT_MAX     16u

/* Protects this process as far as it may. `ret` is the score that its children are to have: what
 * ours was, but not below 0; "" when they have it anyway. */
void oom_protect(const char *path, char ret[OOM_TEXT_MAX]);
