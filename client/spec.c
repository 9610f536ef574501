/* What to run, from the caller's words to the message of the wire. Called by client/exec.c and
 * client/command.c. The message is packed and unpacked again on the way: what comes back owns all
 * of its parts, keeps the bounds of the wire, and packs into the same bytes however often it is
 * sent. */
#include "client/client-internal.h"

#include "common/wire.h"

#include <string.h>

/* Room for what is around the spec in its message. */
#define SPEC_MAX (WIRE_MESSAGE_MAX - 2048u)

struct parts {
    struct client_labels labels;
    Sandstorm__V1__EnvVar *vars;
    Sandstorm__V1__EnvVar **env;
    char **names; /* copies of NAME=VALUE, cut in two */
    size_t name_count;
    Sandstorm__V1__Rlimit *limits;
    Sandstorm__V1__Rlimit **rlimits;
};

static void parts_done(struct parts *parts)
{
    for (size_t i = 0; i < parts->name_count; i++)
        free(parts->names[i]);
    free(parts->names);
    free(parts->vars);
    free(parts->env);
    free(parts->limits);
    free(parts->rlimits);
    client_labels_done(&parts->labels);
}

static size_t count_strings(const char *const *items)
{
    size_t count = 0;
    while (items && items[count])
        count++;
    return count;
}

static int fill_env(const char *const *env, struct parts *parts, Sandstorm__V1__CommandSpec *spec,
                    struct err *err)
{
    size_t count = count_strings(env);
    parts->names = calloc(count + 1, sizeof(*parts->names));
    parts->vars = calloc(count + 1, sizeof(*parts->vars));
    parts->env = calloc(count + 1, sizeof(struct Sandstorm__V1__EnvVar *));
    if (!parts->names || !parts->vars || !parts->env)
        return err_nomem(err);
    for (size_t i = 0; i < count; i++) {
        const char *equals = strchr(env[i], '=');
        if (!equals || equals == env[i])
            return err_set(err, ERR_INVALID, "\"%.100s\" is not NAME=VALUE", env[i]);
        char *name = strdup(env[i]);
        if (!name)
            return err_nomem(err);
        parts->names[parts->name_count++] = name;
        name[equals - env[i]] = '\0';
        sandstorm__v1__env_var__init(&parts->vars[i]);
        parts->vars[i].name = name;
        parts->vars[i].value = name + (equals - env[i]) + 1;
        parts->env[i] = &parts->vars[i];
    }
    spec->env = parts->env;
    spec->n_env = count;
    return 0;
}

static int fill_rlimits(const struct sandstorm_spec *asked, struct parts *parts,
                        Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    size_t count = asked->rlimit_count;
    parts->limits = calloc(count + 1, sizeof(*parts->limits));
    parts->rlimits = calloc(count + 1, sizeof(struct Sandstorm__V1__Rlimit *));
    if (!parts->limits || !parts->rlimits)
        return err_nomem(err);
    for (size_t i = 0; i < count; i++) {
        sandstorm__v1__rlimit__init(&parts->limits[i]);
        parts->limits[i].name = (char *)asked->rlimits[i].name;
        parts->limits[i].soft = asked->rlimits[i].soft;
        parts->limits[i].hard = asked->rlimits[i].hard;
        parts->rlimits[i] = &parts->limits[i];
    }
    spec->rlimits = parts->rlimits;
    spec->n_rlimits = count;
    return 0;
}

static void set_text(char **slot, const char *text)
{
    if (text)
        *slot = (char *)text;
}

static void fill_plain(const struct sandstorm_spec *asked, bool input,
                       Sandstorm__V1__CommandSpec *spec)
{
    spec->n_argv = count_strings(asked->argv);
    spec->argv = (char **)asked->argv;
    set_text(&spec->shell, asked->shell);
    spec->env_clear = asked->env_clear;
    set_text(&spec->cwd, asked->cwd);
    set_text(&spec->user, asked->user);
    set_text(&spec->group, asked->group);
    if (asked->umask_given) {
        spec->umask_choice_case = SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK;
        spec->umask = asked->umask;
    }
    spec->nice = asked->nice;
    spec->timeout_ms = asked->timeout_ms;
    spec->kill_grace_ms = asked->kill_grace_ms;
    spec->stdin_mode = (Sandstorm__V1__StdinMode)(input ? SANDSTORM_INPUT_STREAM : asked->input);
    spec->stdin_data = (ProtobufCBinaryData){ asked->input_size, (uint8_t *)asked->input_data };
    spec->output_policy = (Sandstorm__V1__OutputPolicy)asked->when_full;
    spec->spool_bytes = asked->spool_bytes;
    if (asked->kill_when_client_gone) {
        spec->client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
        spec->client_gone_after_ms = asked->client_gone_after_ms;
    }
}

static int copy(const Sandstorm__V1__CommandSpec *spec, ProtobufCMessage **ret, struct err *err)
{
    CLEANUP_FREE uint8_t *bytes = NULL;
    size_t size = protobuf_c_message_get_packed_size(&spec->base);
    if (size > SPEC_MAX)
        return err_set(err, ERR_EXHAUSTED,
                       "the command line and environment are %zu bytes; at most %u can be sent",
                       size, SPEC_MAX);
    return wire_pack(&spec->base, &bytes, &size, err) < 0 ||
                   wire_unpack(&sandstorm__v1__command_spec__descriptor, bytes, size, ret, err) < 0
               ? err_wrap(err, "this command cannot be sent")
               : 0;
}

int client_spec(const struct sandstorm_spec *asked, bool input, ProtobufCMessage **ret,
                struct err *err)
{
    CLEANUP(parts_done) struct parts parts = { 0 };
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    Sandstorm__V1__Limits limits = SANDSTORM__V1__LIMITS__INIT;
    Sandstorm__V1__Terminal terminal = SANDSTORM__V1__TERMINAL__INIT;
    Sandstorm__V1__TerminalSize size = SANDSTORM__V1__TERMINAL_SIZE__INIT;
    fill_plain(asked, input, &spec);
    if (asked->memory_bytes || asked->cpu_millis || asked->pids) {
        limits.mode = asked->best_effort ? SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT
                                         : SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_REQUIRE;
        limits.memory_bytes = asked->memory_bytes;
        limits.cpu_millis = asked->cpu_millis;
        limits.pids = asked->pids;
        spec.limits = &limits;
    }
    if (asked->terminal) {
        size.rows = asked->rows;
        size.columns = asked->columns;
        terminal.size = &size;
        set_text(&terminal.type, asked->terminal_type);
        spec.terminal = &terminal;
    }
    if (fill_env(asked->env, &parts, &spec, err) < 0 ||
        fill_rlimits(asked, &parts, &spec, err) < 0 ||
        client_labels_pack(asked->labels, &parts.labels, err) < 0)
        return -1;
    spec.labels = parts.labels.pointers;
    spec.n_labels = parts.labels.count;
    return copy(&spec, ret, err);
}
