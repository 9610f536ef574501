/* `sandstorm sandbox`: one sandbox, shut out. next: client/fleet.c. */
#include "cli/cli.h"
#include "cli/text.h"

#include <stddef.h>

struct arguments {
    struct cli_common common;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { 0 },
};

/* sandbox revoke */

static void on_revoked(void *userdata, const struct sandstorm_sandbox *sandbox)
{
    (void)userdata;
    CLEANUP_FREE char *labels = cli_label_options("--label", sandbox->labels);
    text_print(stdout,
               "%s is revoked: its stream ends now and its certificates do not count any more.\n"
               "To bring it back: sandstorm token create --sandbox %s%s\n",
               sandbox->id, sandbox->id, labels ? labels : "");
}

static int act_revoke(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_sandbox_revoke(client, words[0], on_revoked, NULL, error);
}

static const char *const revoke_examples[] = {
    "sandstorm sandbox revoke web-1",
    "Shut out a VM that is not to be trusted any more",
    "sandstorm token create --sandbox web-1",
    "And let it join again, with a new key",
    NULL,
};

static const struct option_page revoke_page = {
    .program = "sandstorm sandbox revoke",
    .section = 1,
    .summary = "shut a sandbox out",
    .usage = "[OPTION...] SANDBOX",
    .options = options,
    .examples = revoke_examples,
};

static const struct cli_verb verb_revoke = {
    .name = "revoke",
    .page = &revoke_page,
    .act = act_revoke,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};

static const struct cli_verb *const verbs[] = { &verb_revoke, NULL };

static const char *const examples[] = {
    "sandstorm sandbox revoke web-1",
    "Shut out a VM that is not to be trusted any more",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm sandbox",
    .section = 1,
    .summary = "what may be done to a sandbox",
    .usage = "VERB [OPTION...]",
    .examples = examples,
};

const struct cli_verb cli_sandbox = { .name = "sandbox", .page = &page, .verbs = verbs };
