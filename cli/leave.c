/* How a verb that would go on for ever is ended. Called by cli/cmd_watch.c, cli/cmd_logs.c and
 * cli/cmd_top.c; next: client/client.c, whose call ends. */
#include "cli/leave.h"

#include "client/client-internal.h"

#include <signal.h>

static const int numbers[LEAVE_SIGNALS] = { SIGINT, SIGTERM, SIGHUP };

int leave_prepare(struct err *err)
{
    return loop_signals_block(numbers, LEAVE_SIGNALS, err);
}

static void on_signal(void *userdata, int number)
{
    struct leave *leave = userdata;
    leave->number = number;
    client_leave(leave->client);
}

int leave_begin(struct leave *leave, struct sandstorm_client *client, struct err *err)
{
    *leave = (struct leave){ .client = client };
    for (unsigned i = 0; i < LEAVE_SIGNALS; i++)
        if (loop_signal_new(client_loop(client), numbers[i], on_signal, leave, &leave->signals[i],
                            err) < 0)
            return -1;
    return 0;
}

void leave_done(struct leave *leave)
{
    for (unsigned i = 0; i < LEAVE_SIGNALS; i++)
        loop_signal_free(leave->signals[i]);
}

bool leave_wait(struct leave *leave, uint64_t for_us)
{
    return client_sleep(leave->client, for_us);
}

int leave_status(const struct leave *leave)
{
    return leave->number == 0 || leave->number == SIGINT ? 0 : 128 + leave->number;
}
