/* `sandstorm drain`, `undrain`, `rm` and `wait-ready`: what is done to one sandbox on its way in
 * and out of service. next: client/fleet.c. */
#include "cli/cli.h"
#include "cli/text.h"

#include <stddef.h>
#include <stdio.h>

#define READY_MAX_US (3600ull * 1000000)

struct arguments {
    struct cli_common common;
    bool undo, force;
    uint64_t timeout_us;
};

/* drain, undrain */

static const struct option undrain_options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { 0 },
};

static const struct option drain_options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "undo", 0, OPTION_FLAG, NULL, "Let it take commands again, as 'sandstorm undrain' does",
      offsetof(struct arguments, undo), 0, 0 },
    { 0 },
};

static void on_drained(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    if (!sandbox->draining)
        text_print(stdout, "%s takes commands again.\n", sandbox->id);
    else if (sandbox->commands_running > 0)
        text_print(stdout,
                   "%s takes no new commands; %u still run, 'sandstorm ps %s' shows them.\n",
                   sandbox->id, sandbox->commands_running, sandbox->id);
    else
        text_print(stdout, "%s takes no new commands, and none runs there.\n", sandbox->id);
}

static int drain(const struct arguments *arguments, const char *id, bool draining,
                 struct sandstorm_error *error)
{
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_sandbox_drain(client, id, draining, on_drained, NULL, error);
}

static int act_drain(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    return drain(arguments, words[0], !arguments->undo, error);
}

static int act_undrain(const void *values, char **words, struct sandstorm_error *error)
{
    return drain(values, words[0], false, error);
}

static const char *const drain_examples[] = {
    "sandstorm drain web-1",
    "Before an upgrade of the VM: it takes no new commands, those that run go on",
    "sandstorm ps web-1",
    "And look whether they have ended",
    "sandstorm undrain web-1",
    "Afterwards",
    NULL,
};

static const struct option_page drain_page = {
    .program = "sandstorm drain",
    .section = 1,
    .summary = "let a sandbox take no new commands",
    .usage = "[OPTION...] SANDBOX",
    .options = drain_options,
    .examples = drain_examples,
};

const struct cli_verb cli_drain = {
    .name = "drain",
    .page = &drain_page,
    .act = act_drain,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};

static const char *const undrain_examples[] = {
    "sandstorm undrain web-1",
    "Let it take commands again",
    NULL,
};

static const struct option_page undrain_page = {
    .program = "sandstorm undrain",
    .section = 1,
    .summary = "let a sandbox take commands again",
    .usage = "[OPTION...] SANDBOX",
    .options = undrain_options,
    .examples = undrain_examples,
};

const struct cli_verb cli_undrain = {
    .name = "undrain",
    .page = &undrain_page,
    .act = act_undrain,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};

/* rm */

static const struct option rm_options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "force", 0, OPTION_FLAG, NULL, "Also when it is connected: its stream ends",
      offsetof(struct arguments, force), 0, 0 },
    { 0 },
};

static int act_rm(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_sandbox_remove(client, words[0], arguments->force, error) < 0)
        return -1;
    text_print(stdout, "%s is removed, and its certificates do not count any more.\n", words[0]);
    return 0;
}

static const char *const rm_examples[] = {
    "sandstorm rm web-1",
    "Forget a VM that is gone; the commands that it ran stay in the history",
    NULL,
};

static const struct option_page rm_page = {
    .program = "sandstorm rm",
    .section = 1,
    .summary = "forget a sandbox",
    .usage = "[OPTION...] SANDBOX",
    .options = rm_options,
    .examples = rm_examples,
};

const struct cli_verb cli_rm = {
    .name = "rm",
    .page = &rm_page,
    .act = act_rm,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};

/* wait-ready */

static const struct option wait_options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { "timeout", 't', OPTION_DURATION, "TIME", "Give up after this long: 10m unless said otherwise",
      offsetof(struct arguments, timeout_us), 1000, READY_MAX_US },
    { 0 },
};

static int act_wait(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_ready(client, words[0], (arguments->timeout_us + 999) / 1000, NULL, NULL,
                                 error);
}

static const char *const wait_examples[] = {
    "sandstorm wait-ready web-1 --timeout 5m && sandstorm exec web-1 -- uname -a",
    "After the VM was made: wait until it has joined and can run commands",
    NULL,
};

static const struct option_page wait_page = {
    .program = "sandstorm wait-ready",
    .section = 1,
    .summary = "wait until a sandbox can run commands",
    .usage = "[OPTION...] SANDBOX",
    .options = wait_options,
    .examples = wait_examples,
};

const struct cli_verb cli_wait_ready = {
    .name = "wait-ready",
    .page = &wait_page,
    .act = act_wait,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};
