/* How a command ended, in a few words. Called by cli/cmd_ps.c and cli/output.c. */
#include "cli/result.h"

#include <stdio.h>

void result_text(const struct sandstorm_outcome *outcome, char out[RESULT_TEXT_MAX])
{
    switch (outcome->result) {
    case SANDSTORM_RESULT_EXITED:
        (void)snprintf(out, RESULT_TEXT_MAX, "exit %u", outcome->exit_code);
        break;
    case SANDSTORM_RESULT_SIGNALED:
        (void)snprintf(out, RESULT_TEXT_MAX, "killed by %s%s", outcome->signal_name,
                       outcome->core_dumped ? " (core dumped)" : "");
        break;
    case SANDSTORM_RESULT_TIMED_OUT:
        (void)snprintf(out, RESULT_TEXT_MAX, "timed out");
        break;
    case SANDSTORM_RESULT_CANCELLED:
        (void)snprintf(out, RESULT_TEXT_MAX, "cancelled: %.100s", outcome->detail);
        break;
    case SANDSTORM_RESULT_START_FAILED:
        (void)snprintf(out, RESULT_TEXT_MAX, "did not start: %s at %s", outcome->error_name,
                       outcome->step);
        break;
    case SANDSTORM_RESULT_OOM_KILLED:
        (void)snprintf(out, RESULT_TEXT_MAX, "out of memory");
        break;
    case SANDSTORM_RESULT_LOST:
        (void)snprintf(out, RESULT_TEXT_MAX, "lost: %s", outcome->lost);
        break;
    default:
        (void)snprintf(out, RESULT_TEXT_MAX, "-");
        break;
    }
}
