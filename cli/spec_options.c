/* The options that say what a command is to be like. Called by cli/cmd_exec.c and cli/cmd_shell.c;
 * next: client/spec.c, which sends it. */
#include "cli/spec_options.h"

#include "common/label.h"

static uint64_t whole_ms(uint64_t us)
{
    return (us + 999) / 1000;
}

static int fill_rlimits(const struct option_list *list, struct cli_spec *ret, struct err *err)
{
    for (unsigned i = 0; i < list->count; i++)
        if (rlimit_parse(list->items[i], ret->names[i], &ret->rlimits[i], err) < 0)
            return err_wrap(err, "--rlimit");
    ret->spec.rlimits = ret->rlimits;
    ret->spec.rlimit_count = list->count;
    return 0;
}

static int fill_labels(const struct option_list *list, struct cli_spec *ret, struct err *err)
{
    for (unsigned i = 0; i < list->count; i++)
        if (labels_add_text(&ret->labels, list->items[i], err) < 0)
            return err_wrap(err, "--label");
    ret->spec.labels = ret->labels;
    return 0;
}

static int fill_limits(const struct cli_spec_options *options, struct sandstorm_spec *spec,
                       struct err *err)
{
    if (options->memory && size_parse(options->memory, &spec->memory_bytes, err) < 0)
        return err_wrap(err, "--memory");
    if (options->cpus && cpus_parse(options->cpus, &spec->cpu_millis, err) < 0)
        return err_wrap(err, "--cpus");
    if (options->umask && umask_parse(options->umask, &spec->umask, err) < 0)
        return err_wrap(err, "--umask");
    if (options->nice && nice_parse(options->nice, &spec->nice, err) < 0)
        return err_wrap(err, "--nice");
    spec->umask_given = options->umask;
    spec->pids = options->pids;
    spec->best_effort = options->best_effort;
    return 0;
}

int cli_spec_fill(const struct cli_spec_options *options, struct cli_spec *ret, struct err *err)
{
    struct sandstorm_spec *spec = &ret->spec;
    if (options->keep && options->gone_after_us)
        return err_set(err, ERR_INVALID, "give --keep or --gone-after, not both");
    if (fill_limits(options, spec, err) < 0 || fill_rlimits(&options->rlimits, ret, err) < 0 ||
        fill_labels(&options->labels, ret, err) < 0)
        return -1;
    for (unsigned i = 0; i < options->env.count; i++)
        ret->env[i] = options->env.items[i];
    spec->env = ret->env;
    spec->cwd = options->cwd;
    spec->user = options->user;
    spec->group = options->group;
    spec->command_id = options->id;
    spec->timeout_ms = whole_ms(options->timeout_us);
    spec->kill_grace_ms = whole_ms(options->kill_grace_us);
    spec->kill_when_client_gone = options->gone_after_us > 0;
    spec->client_gone_after_ms = whole_ms(options->gone_after_us);
    return 0;
}

void cli_spec_done(struct cli_spec *spec)
{
    free(spec->labels);
}
