/* `sandstorm client`: the people and programs that may use this orchestrator. next: client/admin.c.
 */
#include "cli/connect.h"
#include "cli/secret_out.h"
#include "cli/table.h"
#include "cli/text.h"

#include "common/clock.h"
#include "common/ids.h"
#include "common/label.h"

#include <stddef.h>
#include <stdio.h>

#define TTL_MAX_US (365ull * 86400 * 1000000)

/* add */

struct add_arguments {
    struct cli_common common;
    const char *role, *out;
    struct option_list scope;
    uint64_t ttl_us;
    bool quiet;
};

static const struct option add_options[] = {
    CLI_COMMON_OPTIONS(struct add_arguments, common),
    { "role", 'r', OPTION_STRING, "ROLE",
      "viewer (sees sandboxes), operator (runs commands too) or admin (may do everything)",
      offsetof(struct add_arguments, role), 0, 0 },
    { "scope", 0, OPTION_LIST, "KEY=VALUE",
      "Only sandboxes with this label exist for it, all of them where none is given",
      offsetof(struct add_arguments, scope), 0, 0 },
    { "ttl", 0, OPTION_DURATION, "TIME",
      "How long the login key may be used: 12h unless said otherwise",
      offsetof(struct add_arguments, ttl_us), 1000000, TTL_MAX_US },
    { "out", 0, OPTION_STRING, "FILE",
      "Write the login key to this new file, and show it to nobody",
      offsetof(struct add_arguments, out), 0, 0 },
    { "quiet", 'q', OPTION_FLAG, NULL, "The login key alone, without hints on stderr",
      offsetof(struct add_arguments, quiet), 0, 0 },
    { 0 },
};

static const char *const add_examples[] = {
    "sandstorm client add alice --role operator --out alice.key",
    "Alice may run commands; give her the file",
    "sandstorm client add ci --role operator --scope env=ci",
    "A program that sees only sandboxes labelled env=ci",
    NULL,
};

static const struct option_page add_page = {
    .program = "sandstorm client add",
    .section = 1,
    .summary = "let somebody in, and make a login key",
    .usage = "[OPTION...] NAME",
    .options = add_options,
    .examples = add_examples,
};

struct addition {
    struct secret_out out;
    const struct cli_target *target;
    const char *front;
    bool quiet, failed;
    struct err err;
};

static void hint_user(const struct addition *addition, const struct sandstorm_user *user)
{
    char until[TEXT_TIME_MAX], in[TEXT_TIME_MAX];
    text_time(user->login_expires_unix_ms, until);
    text_when(user->login_expires_unix_ms, in);
    const char *file = secret_out_name(&addition->out);
    text_print(stderr, "\n%s is %s %s%s%s. The login key works once, until %s (%s).\n", user->name,
               user->role == SANDSTORM_ROLE_VIEWER ? "a" : "an", sandstorm_role_name(user->role),
               *user->scope ? " for " : "", user->scope, until, in);
    text_print(stderr,
               "To log in, with the key in %s:\n\n"
               "  sandstorm login %s --key-file %s --ca-fingerprint %s%s\n",
               file, addition->target->endpoint, file, user->ca_fingerprint, addition->front);
}

static void on_added(void *userdata, const struct sandstorm_user *user)
{
    struct addition *addition = userdata;
    addition->failed = secret_out_put(&addition->out, user->login_key, &addition->err) < 0;
    if (!addition->failed && secret_out_hints(&addition->out, addition->quiet))
        hint_user(addition, user);
}

static int fill_user(const struct add_arguments *arguments, const char *name, char **scope,
                     struct sandstorm_user_options *ret, struct err *err)
{
    struct sandstorm_error error = { 0 };
    struct sandstorm_user_options user = { .name = name, .ttl_ms = arguments->ttl_us / 1000 };
    if (client_name_check(name, err) < 0)
        return -1;
    if (!arguments->role)
        return err_set(err, ERR_INVALID, "give --role: viewer, operator or admin");
    if (sandstorm_role_parse(arguments->role, &user.role, &error) < 0)
        return err_set(err, ERR_INVALID, "--role: %s", error.text);
    for (unsigned i = 0; i < arguments->scope.count; i++)
        if (labels_add_text(scope, arguments->scope.items[i], err) < 0)
            return err_wrap(err, "--scope");
    user.scope = *scope;
    *ret = user;
    return 0;
}

static int act_add(const void *values, char **words, struct sandstorm_error *error)
{
    const struct add_arguments *arguments = values;
    struct err err = { 0 };
    struct addition addition = { .out.fd = -1, .quiet = arguments->quiet };
    struct sandstorm_user_options user;
    CLEANUP_FREE char *scope = NULL, *front = NULL;
    CLEANUP_TARGET struct cli_target target = { 0 };
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    if (fill_user(arguments, words[0], &scope, &user, &err) < 0 ||
        cli_target_find(&arguments->common, &target, &err) < 0 ||
        cli_target_front(&target, &front, &err) < 0 ||
        secret_out_open(arguments->out, &addition.out, &err) < 0)
        return cli_error(&err, error);
    addition.target = &target;
    addition.front = front;
    int r = cli_target_connect(&target, &client, error);
    if (r == 0)
        r = sandstorm_user_create(client, &user, on_added, &addition, error);
    if (r == 0 && addition.failed)
        r = cli_error(&addition.err, error);
    secret_out_done(&addition.out);
    return r;
}

static const struct cli_verb verb_add = {
    .name = "add",
    .page = &add_page,
    .act = act_add,
    .size = sizeof(struct add_arguments),
    .words_min = 1,
    .words_max = 1,
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
    "sandstorm client list",
    "Who may use this orchestrator, and as what",
    NULL,
};

static const struct option_page list_page = {
    .program = "sandstorm client list",
    .section = 1,
    .summary = "list clients",
    .usage = "[OPTION...]",
    .options = list_options,
    .examples = list_examples,
};

static const struct table_column columns[] = {
    { "NAME", 0.2, false, false },
    { "ROLE", 8, false, false },
    { "SCOPE", 0.2, false, false },
    { "CREATED", 8, false, false },
    { "LOGIN", 8, false, false },
    { "STATE", 10, false, false },
    { 0 },
};

static const char *user_state(const struct sandstorm_user *user)
{
    if (user->revoked_unix_ms != 0)
        return "revoked";
    if (user->login_expires_unix_ms == 0)
        return "active";
    return user->login_expires_unix_ms > wall_ms() ? "invited" : "key expired";
}

static void add_user(void *userdata, const struct sandstorm_user *user)
{
    char created[TEXT_TIME_MAX], login[TEXT_TIME_MAX];
    text_when(user->created_unix_ms, created);
    text_when(user->last_login_unix_ms, login);
    table_add(userdata, (const char *[]){ user->name, sandstorm_role_name(user->role), user->scope,
                                          created, login, user_state(user) });
}

static int act_list(const void *values, char **words, struct sandstorm_error *error)
{
    const struct list_arguments *arguments = values;
    (void)words;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    CLEANUP_TABLE struct table *table = table_new(columns, arguments->no_headers);
    if (cli_connect(&arguments->common, &client, error) < 0 ||
        sandstorm_user_list(client, add_user, table, error) < 0)
        return -1;
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
    "sandstorm client revoke alice",
    "Alice's streams end within seconds, and her certificates do not count any more",
    NULL,
};

static const struct option_page revoke_page = {
    .program = "sandstorm client revoke",
    .section = 1,
    .summary = "shut somebody out",
    .usage = "[OPTION...] NAME",
    .options = revoke_options,
    .examples = revoke_examples,
};

static void on_revoked(void *userdata, const struct sandstorm_user *user)
{
    (void)userdata;
    const char *shown = user->name;
    CLEANUP_FREE char *scope = cli_label_options("--scope", user->scope);
    text_print(stdout,
               "%s is revoked: its streams end now and its certificates do not count any more.\n"
               "To let it in again: sandstorm client add %s --role %s%s\n",
               shown, shown, sandstorm_role_name(user->role), scope ? scope : "");
}

static int act_revoke(const void *values, char **words, struct sandstorm_error *error)
{
    const struct list_arguments *arguments = values;
    CLEANUP_SANDSTORM struct sandstorm_client *client = NULL;
    return cli_connect(&arguments->common, &client, error) < 0
               ? -1
               : sandstorm_user_revoke(client, words[0], on_revoked, NULL, error);
}

static const struct cli_verb verb_revoke = {
    .name = "revoke",
    .page = &revoke_page,
    .act = act_revoke,
    .size = sizeof(struct list_arguments),
    .words_min = 1,
    .words_max = 1,
};

static const struct cli_verb *const verbs[] = { &verb_add, &verb_list, &verb_revoke, NULL };

static const char *const examples[] = {
    "sandstorm client add alice --role operator",
    "Let Alice in; prints her login key",
    "sandstorm client revoke alice",
    "And shut her out again",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm client",
    .section = 1,
    .summary = "who may use this orchestrator",
    .usage = "VERB [OPTION...]",
    .examples = examples,
};

const struct cli_verb cli_client = { .name = "client", .page = &page, .verbs = verbs };
