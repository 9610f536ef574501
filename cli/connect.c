/* Which orchestrator, and as whom: an option, then the environment, then the current context, then
 * the default, for each of the two. Called by cli/cmd_*.c; next: cli/context.c, cli/renew.c,
 * client/client.c. */
#include "cli/connect.h"

#include "cli/renew.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *variable(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

/* The context that was asked for, or the current one, or none. */
static int find_context(const struct cli_common *common, struct context *ret, struct err *err)
{
    CLEANUP_FREE char *current = NULL;
    const char *name = common->context ? common->context : variable("SANDSTORM_CONTEXT");
    if (!name && context_current(&current, err) < 0)
        return -1;
    if (!name)
        name = current;
    return name ? context_load(name, ret, err) : 0;
}

static int no_identity(struct err *err)
{
    return err_set(
        err, ERR_UNAUTHENTICATED,
        "not logged in: run 'sandstorm login HOST:PORT --key-file FILE "
        "--ca-fingerprint sha256:...' with a key that an admin makes with 'sandstorm "
        "client add', or set SANDSTORM_IDENTITY to a directory with ca.pem, cert.pem and "
        "key.pem, as 'sandstorm-orchestrator init' makes (clients/admin)");
}

int cli_target_find(const struct cli_common *common, struct cli_target *ret, struct err *err)
{
    struct cli_target target = { 0 };
    /* A context that is named on the command line is stronger than the environment. */
    const char *endpoint = common->context ? NULL : variable("SANDSTORM_ENDPOINT");
    const char *identity = common->context ? NULL : variable("SANDSTORM_IDENTITY");
    target.endpoint = common->endpoint ? common->endpoint : endpoint;
    target.identity = common->identity ? common->identity : identity;
    target.own_identity = target.identity == NULL;
    /* Who brings an identity brings the endpoint too, or means the default one: an identity of one
     * orchestrator is not shown to another. */
    if (!target.identity && find_context(common, &target.context, err) < 0)
        return -1;
    if (!target.endpoint)
        target.endpoint = target.context.endpoint ? target.context.endpoint : CLI_ENDPOINT;
    if (!target.identity)
        target.identity = target.context.identity_dir;
    if (!target.identity)
        return no_identity(err);
    *ret = target;
    return 0;
}

void cli_target_done(struct cli_target *target)
{
    context_done(&target->context);
}

int cli_target_front(const struct cli_target *target, char **ret, struct err *err)
{
    const struct context *context = &target->context;
    CLEANUP_FREE char *usual = NULL;
    if (context_enroll_endpoint(target->endpoint, &usual, err) < 0)
        return -1;
    bool told = context->endpoint && strcmp(context->endpoint, target->endpoint) == 0 &&
                strcmp(context->enroll_endpoint, usual) != 0;
    if (asprintf(ret, "%s%s", told ? " --enroll-endpoint " : "",
                 told ? context->enroll_endpoint : "") < 0)
        return err_nomem(err);
    return 0;
}

/* When a connection is made again, and the certificate has ended meanwhile. */
static void renew_again(void *userdata)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    struct err err = { 0 };
    if (context_load(userdata, &context, &err) < 0 || renew_if_due(&context, &err) < 0)
        cli_complain(err.text);
}

int cli_target_connect(const struct cli_target *target, struct sandstorm_client **ret,
                       struct sandstorm_error *error)
{
    struct err err = { 0 };
    CLEANUP_FREE char *name = NULL;
    struct sandstorm_client_options options = {
        .endpoint = target->endpoint,
        .identity_dir = target->identity,
    };
    if (target->own_identity) {
        if (renew_if_due(&target->context, &err) < 0)
            return cli_error(&err, error);
        name = strdup(target->context.name);
        options.renew = name ? renew_again : NULL;
        options.release = free;
        options.userdata = name;
    }
    if (sandstorm_client_new(&options, ret, error) < 0)
        return -1;
    name = NULL; /* the client's now */
    return 0;
}

int cli_connect(const struct cli_common *common, struct sandstorm_client **ret,
                struct sandstorm_error *error)
{
    CLEANUP_TARGET struct cli_target target = { 0 };
    struct err err = { 0 };
    if (cli_target_find(common, &target, &err) < 0)
        return cli_error(&err, error);
    return cli_target_connect(&target, ret, error);
}
