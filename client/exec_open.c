/* The first message of an Exec, from the caller's options. Called by client/exec.c. */
#include "client/client-internal.h"

#include "common/wire.h"

#include <string.h>

/* Splits NAME=VALUE in place of a copy: both halves point into `pairs`. */
static int fill_env(const char *const *env, char **copies, Sandstorm__V1__EnvVar *vars,
                    Sandstorm__V1__EnvVar **pointers, struct err *err)
{
    for (size_t i = 0; env[i]; i++) {
        const char *equals = strchr(env[i], '=');
        if (!equals || equals == env[i])
            return err_set(err, ERR_INVALID, "\"%.100s\" is not NAME=VALUE", env[i]);
        copies[i] = strdup(env[i]);
        if (!copies[i])
            return err_nomem(err);
        copies[i][equals - env[i]] = '\0';
        sandstorm__v1__env_var__init(&vars[i]);
        vars[i].name = copies[i];
        vars[i].value = copies[i] + (equals - env[i]) + 1;
        pointers[i] = &vars[i];
    }
    return 0;
}

static size_t count_strings(const char *const *items)
{
    size_t count = 0;
    while (items && items[count])
        count++;
    return count;
}

static void fill_spec(const struct sandstorm_exec_options *options,
                      Sandstorm__V1__CommandSpec *spec)
{
    spec->n_argv = count_strings(options->argv);
    spec->argv = (char **)options->argv;
    if (options->shell)
        spec->shell = (char *)options->shell;
    if (options->cwd)
        spec->cwd = (char *)options->cwd;
    spec->timeout_ms = options->timeout_ms;
    if (options->stdin_fd >= 0)
        spec->stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    if (options->kill_when_client_gone) {
        spec->client_gone = SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER;
        spec->client_gone_after_ms = options->client_gone_after_ms;
    }
}

int client_send_open(struct rpc_call *call, const struct sandstorm_exec_options *options,
                     uint64_t limit, struct err *err)
{
    size_t count = count_strings(options->env);
    char **copies = calloc(count + 1, sizeof(*copies));
    Sandstorm__V1__EnvVar *vars = calloc(count + 1, sizeof(*vars));
    Sandstorm__V1__EnvVar **pointers = calloc(count + 1, sizeof(*pointers));
    int r = -1;
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    fill_spec(options, &spec);
    Sandstorm__V1__ExecOpen open = SANDSTORM__V1__EXEC_OPEN__INIT;
    open.sandbox_id = (char *)options->sandbox;
    if (options->command_id)
        open.command_id = (char *)options->command_id;
    open.spec = &spec;
    open.limit = limit;
    Sandstorm__V1__ExecRequest request = SANDSTORM__V1__EXEC_REQUEST__INIT;
    request.kind_case = SANDSTORM__V1__EXEC_REQUEST__KIND_OPEN;
    request.open = &open;
    if (!copies || !vars || !pointers) {
        (void)err_nomem(err);
    } else if (!options->env || fill_env(options->env, copies, vars, pointers, err) == 0) {
        spec.n_env = count;
        spec.env = pointers;
        size_t size = sandstorm__v1__exec_request__get_packed_size(&request);
        r = size > WIRE_MESSAGE_MAX - 1024
                ? err_set(err, ERR_EXHAUSTED,
                          "the command line and environment are %zu bytes; at most %u can be sent",
                          size, WIRE_MESSAGE_MAX - 1024)
                : rpc_call_send(call, &request.base, err);
    }
    for (size_t i = 0; copies && i < count; i++)
        free(copies[i]);
    free(copies);
    free(vars);
    free(pointers);
    return r;
}
