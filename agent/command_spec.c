/* From a CommandSpec to what execve needs: argv, environment, PATH, working directory. Every field
 * of the spec is either honoured or refused here with words; none is ignored. Called by
 * agent/command_prepare.c before anything is created. */
#include "agent/command-internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define NICE_MIN (-20)
#define NICE_MAX 19

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
        { spec->spool_bytes > SPOOL_COMMAND_MAX, "spool_bytes" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++)
        if (rows[i].asked)
            return unsupported(rows[i].name, err);
    return 0;
}

/* An enum of the schema that is newer than we are. */
static int check_choices(const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    const struct {
        unsigned value, max;
        const char *name;
    } rows[] = {
        { spec->stdin_mode, SANDSTORM__V1__STDIN_MODE__STDIN_MODE_INLINE, "stdin_mode" },
        { spec->output_policy, SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_DROP_OLDEST,
          "output_policy" },
        { spec->client_gone, SANDSTORM__V1__CLIENT_GONE_POLICY__CLIENT_GONE_POLICY_KILL_AFTER,
          "client_gone" },
        { spec->limits ? spec->limits->mode : 0, SANDSTORM__V1__LIMIT_MODE__LIMIT_MODE_BEST_EFFORT,
          "limits.mode" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++)
        if (rows[i].value > rows[i].max)
            return err_errno(err, EINVAL, "%s has a value that this runner does not know: %u",
                             rows[i].name, rows[i].value);
    return 0;
}

static int check_numbers(const Sandstorm__V1__CommandSpec *spec, struct err *err)
{
    if (spec->timeout_ms > COMMAND_MS_MAX || spec->kill_grace_ms > COMMAND_MS_MAX ||
        spec->client_gone_after_ms > COMMAND_MS_MAX)
        return err_errno(err, EINVAL, "a time is longer than a year");
    if (spec->stdin_data.len > COMMAND_STDIN_WINDOW)
        return err_errno(err, EINVAL, "stdin_data is longer than %u bytes", COMMAND_STDIN_WINDOW);
    if (spec->umask_choice_case == SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK &&
        spec->umask > 0777)
        return err_errno(err, EINVAL, "the umask %#o is above 0777", spec->umask);
    if (spec->nice < NICE_MIN || spec->nice > NICE_MAX)
        return err_errno(err, EINVAL, "the niceness %d is not between %d and %d", spec->nice,
                         NICE_MIN, NICE_MAX);
    if (spec->limits && spec->limits->cpu_millis &&
        (spec->limits->cpu_millis < TREE_CPU_MILLIS_MIN ||
         spec->limits->cpu_millis > TREE_CPU_MILLIS_MAX))
        return err_errno(err, EINVAL, "limits.cpu_millis is not between %u and %u",
                         TREE_CPU_MILLIS_MIN, TREE_CPU_MILLIS_MAX);
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
    if (check_choices(spec, err) < 0 || check_numbers(spec, err) < 0 ||
        check_environment(spec, err) < 0 || command_terminal_check(spec->terminal, err) < 0)
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

static int make_environment(const Sandstorm__V1__CommandSpec *spec, const struct command_id *id,
                            const struct command_user *user, char ***ret, struct err *err)
{
    const struct {
        const char *name, *value;
    } base[] = {
        { "PATH", DEFAULT_PATH },    { "HOME", user->home },   { "USER", user->name },
        { "LOGNAME", user->name },   { "SHELL", user->shell }, { "LANG", "C.UTF-8" },
        { TREE_VARIABLE, id->text },
    };
    struct environment env = { .capacity = ELEMENTS(base) + 1 + spec->n_env };
    env.items = calloc(env.capacity + 1, sizeof(*env.items));
    if (!env.items)
        return err_nomem(err);
    *ret = env.items;
    for (size_t i = 0; !spec->env_clear && i < ELEMENTS(base); i++)
        if (put_env(&env, base[i].name, base[i].value, err) < 0)
            return -1;
    if (spec->terminal && put_env(&env, "TERM", command_terminal_type(spec->terminal), err) < 0)
        return -1;
    for (size_t i = 0; i < spec->n_env; i++)
        if (put_env(&env, spec->env[i]->name, spec->env[i]->value, err) < 0)
            return -1;
    return 0;
}

int command_spec_exec(const Sandstorm__V1__CommandSpec *spec, const struct command_id *id,
                      struct command_exec *exec, struct err *err)
{
    exec->path = DEFAULT_PATH;
    exec->cwd_or_root = !*spec->cwd; /* nobody asked for the home in particular */
    exec->cwd = strdup(*spec->cwd ? spec->cwd : exec->user.home);
    if (!exec->cwd)
        return err_nomem(err);
    if (make_argv(spec, &exec->argv, err) < 0 ||
        make_environment(spec, id, &exec->user, &exec->environment, err) < 0)
        return -1;
    for (char **item = exec->environment; *item; item++)
        if (strncmp(*item, "PATH=", 5) == 0)
            exec->path = *item + 5;
    exec->nice = spec->nice;
    exec->umask = spec->umask;
    exec->has_umask = spec->umask_choice_case == SANDSTORM__V1__COMMAND_SPEC__UMASK_CHOICE_UMASK;
    return command_rlimits_parse(spec, exec->rlimits, &exec->rlimit_count, err);
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
    command_user_done(&exec->user);
    *exec = (struct command_exec){ 0 };
}
