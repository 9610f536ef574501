/* `sandstorm whoami`: who the orchestrator takes us for. next: client/admin.c. */
#include "cli/connect.h"
#include "cli/text.h"

#include <stddef.h>
#include <string.h>

struct arguments {
    struct cli_common common;
};

static const struct option options[] = {
    CLI_COMMON_OPTIONS(struct arguments, common),
    { 0 },
};

static const char *const examples[] = {
    "sandstorm whoami",
    "Name, role and scope according to the orchestrator, and until when",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm whoami",
    .section = 1,
    .summary = "show who I am to the orchestrator",
    .usage = "[OPTION...]",
    .options = options,
    .examples = examples,
};

static void on_self(void *userdata, const struct sandstorm_self *self)
{
    const struct cli_target *target = userdata;
    char time[TEXT_TIME_MAX], when[TEXT_TIME_MAX];
    const char *slash = strrchr(self->uri, '/');
    text_time(self->not_after_unix_ms, time);
    text_when(self->not_after_unix_ms, when);
    text_print(stdout,
               "name         %s\nrole         %s\nscope        %s\ncertificate  %s (%s)\n"
               "identity     %s\nendpoint     %s\n",
               slash ? slash + 1 : self->uri, sandstorm_role_name(self->role),
               *self->scope ? self->scope : "all sandboxes", time, when, self->uri,
               target->endpoint);
    if (target->own_identity)
        text_print(stdout, "context      %s\n", target->context.name);
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    (void)words;
    struct err err = { 0 };
    CLEANUP_TARGET struct cli_target target = { 0 };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (cli_target_find(&arguments->common, &target, &err) < 0)
        return cli_error(&err, error);
    return cli_target_connect(&target, &client, error) < 0
               ? -1
               : sandstorm_whoami(client, on_self, &target, error);
}

const struct cli_verb cli_whoami = {
    .name = "whoami", .page = &page, .act = act, .size = sizeof(struct arguments)
};
