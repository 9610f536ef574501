/* `sandstorm version`. */
#include "cli/cli.h"

#include "common/version.h"

static const struct option options[] = { { 0 } };

static const char *const examples[] = {
    "sandstorm version",
    "The version of this client; the orchestrator and each agent have their own",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm version",
    .section = 1,
    .summary = "print the version of this client",
    .usage = "",
    .options = options,
    .examples = examples,
};

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    (void)values;
    (void)words;
    (void)error;
    (void)printf("sandstorm %s\n", SANDSTORM_VERSION);
    return 0;
}

const struct cli_verb cli_version = { .name = "version", .page = &page, .act = act };
