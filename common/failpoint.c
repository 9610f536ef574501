/* See common/failpoint.h. Built only with SANDSTORM_FAILPOINTS; driven by tests/integration. */
#include "common/failpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void failpoint(const char *name)
{
    const char *wanted = getenv("SANDSTORM_FAILPOINT");
    if (wanted && strcmp(wanted, name) == 0)
        (void)kill(getpid(), SIGKILL);
}
