/* How a command ended, from the wire to the client's own words, and to a shell's number. Called by
 * client/exec.c for the end record and by client/commands.c for the history. */
#include "client/client-internal.h"

#include <stdio.h>
#include <string.h>

static const char *step_name(Sandstorm__V1__StartStep step)
{
    static const char *const names[] = { "unknown", "spec",   "admit",  "pipes", "fork",
                                         "session", "cgroup", "limits", "user",  "cwd",
                                         "stdio",   "exec",   "policy" };
    return (size_t)step < ELEMENTS(names) ? names[step] : "unknown";
}

static const char *lost_name(Sandstorm__V1__LostReason reason)
{
    static const char *const names[] = { "unknown", "rebooted", "runner restarted", "released",
                                         "never started" };
    return (size_t)reason < ELEMENTS(names) ? names[reason] : "unknown";
}

static void fill_result(const Sandstorm__V1__Outcome *message, struct sandstorm_outcome *outcome)
{
    switch (message->result_case) {
    case SANDSTORM__V1__OUTCOME__RESULT_EXITED:
        outcome->result = SANDSTORM_RESULT_EXITED;
        outcome->exit_code = message->exited->code;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_SIGNALED:
        outcome->result = SANDSTORM_RESULT_SIGNALED;
        outcome->signal = message->signaled->signal;
        outcome->core_dumped = message->signaled->core_dumped;
        (void)snprintf(outcome->signal_name, sizeof(outcome->signal_name), "%s",
                       message->signaled->name);
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_TIMED_OUT:
        outcome->result = SANDSTORM_RESULT_TIMED_OUT;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_CANCELLED:
        outcome->result = SANDSTORM_RESULT_CANCELLED;
        (void)snprintf(outcome->detail, sizeof(outcome->detail), "%s", message->cancelled->reason);
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_START_FAILED:
        outcome->result = SANDSTORM_RESULT_START_FAILED;
        outcome->error_number = message->start_failed->errno_number;
        (void)snprintf(outcome->error_name, sizeof(outcome->error_name), "%s",
                       message->start_failed->errno_name);
        (void)snprintf(outcome->step, sizeof(outcome->step), "%s",
                       step_name(message->start_failed->step));
        (void)snprintf(outcome->detail, sizeof(outcome->detail), "%s",
                       message->start_failed->detail);
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_OOM_KILLED:
        outcome->result = SANDSTORM_RESULT_OOM_KILLED;
        break;
    case SANDSTORM__V1__OUTCOME__RESULT_LOST:
        outcome->result = SANDSTORM_RESULT_LOST;
        (void)snprintf(outcome->lost, sizeof(outcome->lost), "%s",
                       lost_name(message->lost->reason));
        (void)snprintf(outcome->detail, sizeof(outcome->detail), "%s", message->lost->detail);
        break;
    default:
        /* A result that this version does not know is not one that it may guess at. */
        outcome->result = SANDSTORM_RESULT_LOST;
        (void)snprintf(outcome->lost, sizeof(outcome->lost), "unknown");
        (void)snprintf(outcome->detail, sizeof(outcome->detail),
                       "the sandbox reports a result that this client is too old to know");
        break;
    }
}

void client_outcome(const Sandstorm__V1__Outcome *message, struct sandstorm_outcome *ret)
{
    fill_result(message, ret);
    ret->duration_us = message->duration_us;
    ret->stdout_bytes = message->stdout_bytes;
    ret->stderr_bytes = message->stderr_bytes;
    ret->stream_held_open = message->stream_held_open;
}

int sandstorm_exit_status(const struct sandstorm_outcome *outcome)
{
    switch (outcome->result) {
    case SANDSTORM_RESULT_EXITED:
        return (int)(outcome->exit_code & 0xff);
    case SANDSTORM_RESULT_SIGNALED:
        return 128 + (int)(outcome->signal & 0x7f);
    case SANDSTORM_RESULT_TIMED_OUT:
        return 124;
    case SANDSTORM_RESULT_CANCELLED:
        return 143; /* 128 + SIGTERM, which is how a cancellation begins */
    case SANDSTORM_RESULT_START_FAILED:
        if (strcmp(outcome->step, "exec") != 0)
            return 125;
        return strcmp(outcome->error_name, "ENOENT") == 0 ? 127 : 126;
    case SANDSTORM_RESULT_OOM_KILLED:
        return 137; /* 128 + SIGKILL */
    default:
        return 255;
    }
}
