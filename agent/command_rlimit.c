/* The table of POSIX limits. agent/command_spec.c asks; agent/spawn.c sets them. */
#include "agent/command_rlimit.h"

#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    int resource;
} names[] = {
    { "as", RLIMIT_AS },
    { "core", RLIMIT_CORE },
    { "cpu", RLIMIT_CPU },
    { "data", RLIMIT_DATA },
    { "fsize", RLIMIT_FSIZE },
    { "locks", RLIMIT_LOCKS },
    { "memlock", RLIMIT_MEMLOCK },
    { "msgqueue", RLIMIT_MSGQUEUE },
    { "nice", RLIMIT_NICE },
    { "nofile", RLIMIT_NOFILE },
    { "nproc", RLIMIT_NPROC },
    { "rss", RLIMIT_RSS },
    { "rtprio", RLIMIT_RTPRIO },
    { "rttime", RLIMIT_RTTIME },
    { "sigpending", RLIMIT_SIGPENDING },
    { "stack", RLIMIT_STACK },
};
_Static_assert(ELEMENTS(names) == COMMAND_RLIMITS_MAX, "one row for each that may be given");

static int parse(const Sandstorm__V1__Rlimit *limit, struct spawn_rlimit *ret, struct err *err)
{
    for (size_t i = 0; i < ELEMENTS(names); i++) {
        if (strcmp(names[i].name, limit->name) != 0)
            continue;
        /* The highest value means "no limit", here as for the kernel. */
        *ret = (struct spawn_rlimit){
            .resource = names[i].resource,
            .name = names[i].name,
            .limit = { .rlim_cur = (rlim_t)limit->soft, .rlim_max = (rlim_t)limit->hard },
        };
        return 0;
    }
    return err_errno(err, EINVAL,
                     "there is no resource limit \"%.32s\"; use a name like nofile, nproc or core",
                     limit->name);
}

int command_rlimits_parse(const Sandstorm__V1__CommandSpec *spec,
                          struct spawn_rlimit ret[COMMAND_RLIMITS_MAX], size_t *ret_count,
                          struct err *err)
{
    size_t count = 0;
    for (; count < spec->n_rlimits; count++) {
        struct spawn_rlimit limit;
        if (parse(spec->rlimits[count], &limit, err) < 0)
            return -1;
        for (size_t i = 0; i < count; i++)
            if (ret[i].resource == limit.resource)
                return err_errno(err, EINVAL, "the resource limit \"%s\" is given twice",
                                 limit.name);
        if (limit.limit.rlim_cur > limit.limit.rlim_max)
            return err_errno(err, EINVAL,
                             "the resource limit \"%s\" has a soft value above its hard one",
                             limit.name);
        /* No name comes twice, so there are never more than the table has. */
        ret[count] = limit;
    }
    *ret_count = count;
    return 0;
}
