/* How a command ended, in a few words. Called by cli/cmd_ps.c and cli/output.c; as a sentence, by
 * cli/foreground.c and cli/cmd_wait.c. */
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

static void left_over(const struct sandstorm_outcome *outcome, char out[RESULT_SENTENCE_MAX])
{
    *out = '\0';
    if (outcome->stream_held_open)
        (void)snprintf(out, RESULT_SENTENCE_MAX,
                       "a process that the command left behind still holds its output open");
    else if (outcome->survivors)
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command left %u process%s behind",
                       outcome->survivors, outcome->survivors == 1 ? "" : "es");
}

void result_sentence(const struct sandstorm_outcome *outcome, char out[RESULT_SENTENCE_MAX])
{
    switch (outcome->result) {
    case SANDSTORM_RESULT_SIGNALED:
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command was killed by SIG%s%s",
                       outcome->signal_name, outcome->core_dumped ? " (core dumped)" : "");
        break;
    case SANDSTORM_RESULT_TIMED_OUT:
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command was killed: its timeout passed");
        break;
    case SANDSTORM_RESULT_CANCELLED:
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command was cancelled: %s", outcome->detail);
        break;
    case SANDSTORM_RESULT_START_FAILED:
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command did not start: %s (%s at step %s)",
                       outcome->detail, outcome->error_name, outcome->step);
        break;
    case SANDSTORM_RESULT_OOM_KILLED:
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command was killed: out of memory");
        if (outcome->peak_memory_bytes)
            (void)snprintf(out, RESULT_SENTENCE_MAX,
                           "the command was killed: out of memory, it had %llu MiB",
                           (unsigned long long)(outcome->peak_memory_bytes >> 20));
        break;
    case SANDSTORM_RESULT_LOST:
        (void)snprintf(out, RESULT_SENTENCE_MAX, "the command's result is lost: %s",
                       outcome->detail);
        break;
    default:
        left_over(outcome, out);
        break;
    }
}
