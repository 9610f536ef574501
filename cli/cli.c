/* What the verbs share: finding the orchestrator and the identity, and complaining. Called by
 * cli/cmd_*.c; next: client/client.c. */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *choose(const char *option, const char *variable, const char *fallback)
{
    const char *value = getenv(variable);
    if (option)
        return option;
    return value && *value ? value : fallback;
}

int cli_connect(const struct cli_common *common, struct sandstorm_client **ret,
                struct sandstorm_error *error)
{
    const struct sandstorm_client_options options = {
        .endpoint = choose(common->endpoint, "SANDSTORM_ENDPOINT", CLI_ENDPOINT),
        .identity_dir = choose(common->identity, "SANDSTORM_IDENTITY", NULL),
    };
    if (!options.identity_dir) {
        error->code = SANDSTORM_UNAUTHENTICATED;
        (void)snprintf(error->text, sizeof(error->text),
                       "no identity: set SANDSTORM_IDENTITY or --identity to a directory with "
                       "ca.pem, cert.pem and key.pem, as 'sandstorm-orchestrator init' makes "
                       "(clients/admin)");
        return -1;
    }
    return sandstorm_client_new(&options, ret, error);
}

void cli_complain(const char *text)
{
    (void)fprintf(stderr, "sandstorm: %s\n", text);
}
