/* `sandstorm version`. */
#include "cli/cli.h"

#include "common/version.h"

static const struct option options[] = { { 0 } };

static const struct option_page page = {
    .program = "sandstorm version",
    .section = 1,
    .summary = "print the version of this client",
    .usage = "",
    .options = options,
};

static int run(int argc, char **argv)
{
    struct err err;
    bool help;
    int rest;
    int unused = 0;
    if (options_parse(&page, argc, argv, &unused, &help, &rest, &err) < 0) {
        cli_complain(err.text);
        return err_exit_code(err.code);
    }
    if (help)
        options_help(&page, stdout);
    else
        (void)printf("sandstorm %s\n", SANDSTORM_VERSION);
    return 0;
}

const struct cli_verb cli_version = { "version", &page, run };
