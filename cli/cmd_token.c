/* `sandstorm token`: join tokens, each of which lets a VM get its first certificate.
 * next: client/admin.c. */
#include "cli/connect.h"
#include "cli/secret_out.h"
#include "cli/table.h"
#include "cli/text.h"

#include "common/clock.h"
#include "common/label.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define TTL_MAX_US (365ull * 86400 * 1000000)

/* create */

struct create_arguments {
    struct cli_common common;
    uint64_t ttl_us, uses;
    const char *sandbox, *prefix, *role, *out;
    struct option_list labels;
    bool quiet;
};

static const struct option create_options[] = {
    CLI_COMMON_OPTIONS(struct create_arguments, common),
    { "ttl", 0, OPTION_DURATION, "TIME", "How long it may be used: 15m unless said otherwise",
      offsetof(struct create_arguments, ttl_us), 1000000, TTL_MAX_US },
    { "uses", 0, OPTION_UINT, "COUNT", "How many VMs may join with it: 1 unless said otherwise",
      offsetof(struct create_arguments, uses), 1, UINT32_MAX },
    { "sandbox", 0, OPTION_STRING, "ID",
      "Only for the sandbox of this id, also one that was revoked",
      offsetof(struct create_arguments, sandbox), 0, 0 },
    { "prefix", 0, OPTION_STRING, "TEXT", "Only for ids that begin with this",
      offsetof(struct create_arguments, prefix), 0, 0 },
    { "label", 0, OPTION_LIST, "KEY=VALUE", "Label the sandboxes that join with it",
      offsetof(struct create_arguments, labels), 0, 0 },
    { "role", 0, OPTION_STRING, "ROLE", "Whom it is for: agent, the only role that joins by token",
      offsetof(struct create_arguments, role), 0, 0 },
    { "out", 0, OPTION_STRING, "FILE", "Write the token to this new file, and show it to nobody",
      offsetof(struct create_arguments, out), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "The token alone, without hints on stderr",
      offsetof(struct create_arguments, quiet), 0, 0 },
    { 0 },
};

static const char *const create_examples[] = {
    "sandstorm token create",
    "For one VM, within 15 minutes",
    "sandstorm token create --prefix ci- --uses 50 --ttl 1h --label env=ci --out ci.token",
    "For a batch of VMs that carry a label; the token goes to a file",
    "sandstorm token create --sandbox web-1",
    "Bring back a sandbox that was revoked, or give it a new machine",
    NULL,
};

static const struct option_page create_page = {
    .program = "sandstorm token create",
    .section = 1,
    .summary = "make a token that lets a VM join",
    .usage = "[OPTION...]",
    .options = create_options,
    .examples = create_examples,
};

static int fill_token(const struct create_arguments *arguments, char **labels,
                      struct sandstorm_token_options *ret, struct err *err)
{
    if (arguments->role && strcmp(arguments->role, "agent") != 0)
        return err_set(err, ERR_INVALID,
                       "--role can only be agent: tokens are for VMs. People and programs get a "
                       "login key: 'sandstorm client add NAME --role ROLE'");
    if (arguments->sandbox && arguments->prefix)
        return err_set(err, ERR_INVALID, "give --sandbox or --prefix, not both");
    if (arguments->sandbox && arguments->uses > 1)
        return err_set(err, ERR_INVALID,
                       "--sandbox names one VM, so --uses must be 1; use --prefix for several");
    for (unsigned i = 0; i < arguments->labels.count; i++)
        if (labels_add_text(labels, arguments->labels.items[i], err) < 0)
            return err_wrap(err, "--label");
    *ret = (struct sandstorm_token_options){
        .sandbox = arguments->sandbox,
        .prefix = arguments->prefix,
        .labels = *labels,
        .uses_max = (uint32_t)arguments->uses,
        .ttl_ms = arguments->ttl_us / 1000,
    };
    return 0;
}

struct creation {
    struct secret_out out;
    const struct cli_target *target;
    const char *front;
    bool quiet, failed;
    struct err err;
};

static void hint_token(const struct creation *creation, const struct sandstorm_token *token)
{
    char until[TEXT_TIME_MAX], in[TEXT_TIME_MAX];
    text_time(token->expires_unix_ms, until);
    text_when(token->expires_unix_ms, in);
    text_print(stderr, "\nToken %s lets ", token->id);
    if (*token->sandbox)
        text_print(stderr, "the sandbox %s join", token->sandbox);
    else
        text_print(stderr, "%u VM%s join as %s%s", token->uses_max, token->uses_max == 1 ? "" : "s",
                   *token->prefix ? token->prefix : "any id", *token->prefix ? "..." : "");
    if (*token->labels)
        text_print(stderr, ", labelled %s", token->labels);
    text_print(stderr,
               ", until %s (%s).\nIn the VM, with the token in %s:\n\n"
               "  sandstorm-agent enroll --endpoint %s --token-file %s --ca-fingerprint %s%s\n",
               until, in, secret_out_name(&creation->out), creation->target->endpoint,
               secret_out_name(&creation->out), token->ca_fingerprint, creation->front);
}

static void on_created(void *userdata, const struct sandstorm_token *token)
{
    struct creation *creation = userdata;
    creation->failed = secret_out_put(&creation->out, token->secret, &creation->err) < 0;
    if (!creation->failed && secret_out_hints(&creation->out, creation->quiet))
        hint_token(creation, token);
}

static int act_create(const void *values, char **words, struct sandstorm_error *error)
{
    const struct create_arguments *arguments = values;
    (void)words;
    struct err err = { 0 };
    struct creation creation = { .out.fd = -1, .quiet = arguments->quiet };
    struct sandstorm_token_options token;
    CLEANUP_FREE char *labels = NULL, *front = NULL;
    CLEANUP_TARGET struct cli_target target = { 0 };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (fill_token(arguments, &labels, &token, &err) < 0 ||
        cli_target_find(&arguments->common, &target, &err) < 0 ||
        cli_target_front(&target, &front, &err) < 0 ||
        secret_out_open(arguments->out, &creation.out, &err) < 0)
        return cli_error(&err, error);
    creation.target = &target;
    creation.front = front;
    int r = cli_target_connect(&target, &client, error);
    if (r == 0)
        r = sandstorm_token_create(client, &token, on_created, &creation, error);
    if (r == 0 && creation.failed)
        r = cli_error(&creation.err, error);
    secret_out_done(&creation.out);
    return r;
}

static const struct cli_verb verb_create = {
    .name = "create",
    .page = &create_page,
    .act = act_create,
    .size = sizeof(struct create_arguments),
};

/* list */

struct list_arguments {
    struct cli_common common;
    bool no_headers;
};

static const struct option list_options[] = {
    CLI_COMMON_OPTIONS(struct list_arguments, common),
    { "no-headers", 0, OPTION_FLAG, NULL, "Leave the first line out",
      offsetof(struct list_arguments, no_headers), 0, 0 },
    { 0 },
};

static const char *const list_examples[] = {
    "sandstorm token list",
    "Which tokens there are, without their secrets",
    NULL,
};

static const struct option_page list_page = {
    .program = "sandstorm token list",
    .section = 1,
    .summary = "list join tokens",
    .usage = "[OPTION...]",
    .options = list_options,
    .examples = list_examples,
};

static const struct table_column columns[] = {
    { "ID", 12, false, false },      { "SANDBOX/PREFIX", 0.2, false, false },
    { "LABELS", 0.2, false, false }, { "USES", 5, true, false },
    { "EXPIRES", 8, false, false },  { "BY", 0.1, false, false },
    { "STATE", 8, false, false },    { 0 },
};

static const char *token_state(const struct sandstorm_token *token)
{
    if (token->revoked_unix_ms != 0)
        return "revoked";
    if (token->uses >= token->uses_max)
        return "used up";
    return token->expires_unix_ms <= wall_ms() ? "expired" : "open";
}

static void add_token(void *userdata, const struct sandstorm_token *token)
{
    char expires[TEXT_TIME_MAX], uses[32], bound[256];
    text_when(token->expires_unix_ms, expires);
    bool expired = token->expires_unix_ms <= wall_ms();
    (void)snprintf(uses, sizeof(uses), "%u/%u", token->uses, token->uses_max);
    (void)snprintf(bound, sizeof(bound), "%s%s", *token->sandbox ? token->sandbox : token->prefix,
                   *token->sandbox ? "" : "*");
    table_add(userdata, (const char *[]){ token->id, bound, token->labels, uses,
                                          expired ? "expired" : expires, token->created_by,
                                          token_state(token) });
}

static int act_list(const void *values, char **words, struct sandstorm_error *error)
{
    const struct list_arguments *arguments = values;
    (void)words;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_TABLE struct table *table = table_new(columns, arguments->no_headers);
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_token_list(client, add_token, table, error) < 0)
        return -1;
    if (table_is_empty(table))
        (void)fputs("There is no token. 'sandstorm token create' makes one.\n", stderr);
    else
        table_print(table);
    return 0;
}

static const struct cli_verb verb_list = {
    .name = "list",
    .alias = "ls",
    .page = &list_page,
    .act = act_list,
    .size = sizeof(struct list_arguments),
};

/* revoke */

static const struct option revoke_options[] = {
    CLI_COMMON_OPTIONS(struct list_arguments, common),
    { 0 },
};

static const char *const revoke_examples[] = {
    "sandstorm token revoke 0a1b2c3d4e5f",
    "Nobody joins with it any more; who has joined already stays",
    NULL,
};

static const struct option_page revoke_page = {
    .program = "sandstorm token revoke",
    .section = 1,
    .summary = "make a join token useless",
    .usage = "[OPTION...] ID",
    .options = revoke_options,
    .examples = revoke_examples,
};

static void on_revoked(void *userdata, const struct sandstorm_token *token)
{
    (void)userdata;
    text_print(stdout,
               "Token %s is revoked: nobody joins with it any more. It was used %u time%s.\n",
               token->id, token->uses, token->uses == 1 ? "" : "s");
}

static int act_revoke(const void *values, char **words, struct sandstorm_error *error)
{
    const struct list_arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_token_revoke(client, words[0], on_revoked, NULL, error);
}

static const struct cli_verb verb_revoke = {
    .name = "revoke",
    .page = &revoke_page,
    .act = act_revoke,
    .size = sizeof(struct list_arguments),
    .words_min = 1,
    .words_max = 1,
};

static const struct cli_verb *const verbs[] = { &verb_create, &verb_list, &verb_revoke, NULL };

static const char *const examples[] = {
    "sandstorm token create --label env=ci",
    "A token for one VM",
    "sandstorm token create --help",
    "All about one verb",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm token",
    .section = 1,
    .summary = "join tokens: let VMs in",
    .usage = "VERB [OPTION...]",
    .examples = examples,
};

const struct cli_verb cli_token = { .name = "token", .page = &page, .verbs = verbs };
