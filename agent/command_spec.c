/* From a CommandSpec to what execve needs: argv, environment, PATH, working directory. Every field
 * of the spec is either honoured or refused here with words; none is ignored. Called by
 * agent/command.c before anything is created. */
#include "agent/command-internal.h"

#include <assert.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static int unsupported(const char *what, struct err *err)
{
    return err_errno(err, ENOTSUP, "this runner cannot honour \"%s\" yet; leave it out", what);
}

/* What this version does not do. A row goes when its feature comes. */
static int check_supported(const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    const struct {
        bool asked;
        const char *name;
    } rows[] = {
        { *spec->user, "user" },
        { *spec->group, "group" },
        { spec->umask_choice_case != SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE__NOT_SET, "umask" },
        { spec->nice != 0, "nice" },
        { spec->n_rlimits > 0, "rlimits" },
        { spec->limits != NULL, "limits" },
        { spec->terminal != NULL, "terminal" },
        { spec->spool_bytes > SPOOL_COMMAND_MAX, "spool_bytes" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++)
        if (rows[i].asked)
            return unsupported(rows[i].name, err);
    return 0;
}

static int check_environment(const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    if (spec->n_env > COMMAND_ENV_MAX)
        return err_errno(err, E2BIG, "%zu environment variables; at most %u", spec->n_env,
                         COMMAND_ENV_MAX);
    for (size_t i = 0; i < spec->n_env; i++)
        if (!*spec->env[i]->name || strchr(spec->env[i]->name, '='))
            return err_errno(err, EINVAL,
                             "environment variable %zu: the name is empty or contains '='", i + 1);
    return 0;
}

int command_spec_check(const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    if ((spec->n_argv > 0) == (*spec->shell != '\0'))
        return err_errno(err, EINVAL, "give exactly one of argv and shell");
    if (spec->n_argv > COMMAND_ARGV_MAX)
        return err_errno(err, E2BIG, "%zu arguments; at most %u", spec->n_argv, COMMAND_ARGV_MAX);
    if (spec->n_argv > 0 && !*spec->argv[0])
        return err_errno(err, EINVAL, "argv[0] is empty");
    if (*spec->cwd && *spec->cwd != '/')
        return err_errno(err, EINVAL, "the working directory \"%.200s\" is not absolute",
                         spec->cwd);
    if (spec->stdin_mode > SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE ||
        spec->stdin_data.len > COMMAND_STDIN_WINDOW)
        return err_errno(err, EINVAL, "stdin_mode is unknown or stdin_data longer than %u bytes",
                         COMMAND_STDIN_WINDOW);
    if (spec->timeout_ms > COMMAND_MS_MAX || spec->kill_grace_ms > COMMAND_MS_MAX ||
        spec->client_gone_after_ms > COMMAND_MS_MAX)
        return err_errno(err, EINVAL, "a time is longer than a year");
    if (check_environment(spec, err) < 0)
        return -1;
    return check_supported(spec, err);
}

static int make_argv(const Sandstorm__V1__CommandSpec *spec, char ***ret, struct err *err)
{
    const char *const shell[] = { "/bin/sh", "-c", spec->shell };
    size_t count = spec->n_argv ? spec->n_argv : ELEMENTS(shell);
    char **argv = calloc(count + 1, sizeof(*argv));
    if (!argv)
        return err_nomem(err);
    *ret = argv;
    for (size_t i = 0; i < count; i++) {
        argv[i] = strdup(spec->n_argv ? spec->argv[i] : shell[i]);
        if (!argv[i])
            return err_nomem(err);
    }
    return 0;
}

struct environment {
    char **items;
    size_t count, capacity;
};

static int put_env(struct environment *env, const char *name, const char *value, struct err *err)
{
    assert(env->count < env->capacity);
    char *item;
    if (asprintf(&item, "%s=%s", name, value) < 0)
        return err_nomem(err);
    size_t prefix = strlen(name) + 1;
    for (size_t i = 0; i < env->count; i++)
        if (strncmp(env->items[i], item, prefix) == 0) {
            free(env->items[i]);
            env->items[i] = item;
            return 0;
        }
    env->items[env->count++] = item;
    return 0;
}

static int make_environment(const Sandstorm__V1__CommandSpec *spec, const struct passwd *user,
                            char ***ret, struct err *err)
{
    const struct {
        const char *name, *value;
    } base[] = {
        { "PATH", DEFAULT_PATH },
        { "HOME", user ? user->pw_dir : "/" },
        { "USER", user ? user->pw_name : "root" },
        { "LOGNAME", user ? user->pw_name : "root" },
        { "SHELL", user && *user->pw_shell ? user->pw_shell : "/bin/sh" },
        { "LANG", "C.UTF-8" },
    };
    struct environment env = { .capacity = ELEMENTS(base) + spec->n_env };
    env.items = calloc(env.capacity + 1, sizeof(*env.items));
    if (!env.items)
        return err_nomem(err);
    *ret = env.items;
    for (size_t i = 0; !spec->env_clear && i < ELEMENTS(base); i++)
        if (put_env(&env, base[i].name, base[i].value, err) < 0)
            return -1;
    for (size_t i = 0; i < spec->n_env; i++)
        if (put_env(&env, spec->env[i]->name, spec->env[i]->value, err) < 0)
            return -1;
    return 0;
}

int command_spec_exec(const Sandstorm__V1__CommandSpec *spec, struct command_exec *ret,
                      struct err *err)
{
    struct command_exec exec = { .path = DEFAULT_PATH };
    const struct passwd *user = getpwuid(geteuid());
    const char *home = user && *user->pw_dir ? user->pw_dir : "/";
    const char *cwd = *spec->cwd ? spec->cwd : access(home, X_OK) == 0 ? home : "/";
    if (make_argv(spec, &exec.argv, err) < 0 ||
        make_environment(spec, user, &exec.environment, err) < 0) {
        command_exec_free(&exec);
        return -1;
    }
    exec.cwd = strdup(cwd);
    if (!exec.cwd) {
        command_exec_free(&exec);
        return err_nomem(err);
    }
    for (char **item = exec.environment; *item; item++)
        if (strncmp(*item, "PATH=", 5) == 0)
            exec.path = *item + 5;
    *ret = exec;
    return 0;
}

static void free_strings(char **items)
{
    for (char **item = items; item && *item; item++)
        free(*item);
    free(items);
}

void command_exec_free(struct command_exec *exec)
{
    free_strings(exec->argv);
    free_strings(exec->environment);
    free(exec->cwd);
    *exec = (struct command_exec){ 0 };
}
