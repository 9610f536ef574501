/* A sandbox's state and numbers in words. Called by the verbs that show sandboxes. */
#include "cli/sandbox_text.h"

#include "common/macros.h"

#include <stdio.h>

void sandbox_state_text(const struct sandstorm_sandbox *sandbox, char out[SANDBOX_STATE_MAX])
{
    bool maimed = sandbox->state == SANDSTORM_STATE_ONLINE && !sandbox->runner_connected;
    (void)snprintf(out, SANDBOX_STATE_MAX, "%s%s",
                   maimed ? "no runner" : sandstorm_state_name(sandbox->state),
                   sandbox->draining ? ",draining" : "");
}

void sandbox_bytes_text(uint64_t bytes, char out[SANDBOX_BYTES_MAX])
{
    static const char units[] = "BKMGTPE";
    unsigned unit = 0;
    double value = (double)bytes;
    for (; value >= 1024 && units[unit + 1]; unit++)
        value /= 1024;
    (void)snprintf(out, SANDBOX_BYTES_MAX, "%.*f%c", unit > 0 && value < 10 ? 1 : 0, value,
                   units[unit]);
}

static uint32_t used(uint64_t total, uint64_t left)
{
    if (total == 0)
        return 0;
    /* A peer may say that more is left than there is. */
    return (uint32_t)((double)(total - MIN(left, total)) / (double)total * 10000);
}

uint32_t sandbox_memory_basis_points(const struct sandstorm_sandbox *sandbox)
{
    return used(sandbox->memory_total_bytes, sandbox->memory_available_bytes);
}

uint32_t sandbox_disk_basis_points(const struct sandstorm_sandbox *sandbox)
{
    return used(sandbox->disk_total_bytes, sandbox->disk_free_bytes);
}

uint32_t sandbox_percent(uint32_t basis_points)
{
    return basis_points / 100 + (basis_points % 100 >= 50);
}

bool sandbox_is_ready(const struct sandstorm_sandbox *sandbox)
{
    return sandbox->state == SANDSTORM_STATE_ONLINE && sandbox->runner_connected &&
           !sandbox->draining;
}

bool sandbox_was_heard(const struct sandstorm_sandbox *sandbox)
{
    return sandbox->memory_total_bytes > 0;
}
