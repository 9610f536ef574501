/* Resource limits by name. */
#include "agent/command_rlimit.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static const char *const names[] = { "as",     "core",   "cpu",        "data",
                                     "fsize",  "locks",  "memlock",    "msgqueue",
                                     "nice",   "nofile", "nproc",      "rss",
                                     "rtprio", "rttime", "sigpending", "stack" };

static int parse(const Sandstorm__V1__Rlimit *limits, size_t count, struct spawn_rlimit *ret,
                 size_t *ret_count, struct err *err)
{
    Sandstorm__V1__Rlimit *pointers[64];
    Sandstorm__V1__CommandSpec spec = SANDSTORM__V1__COMMAND_SPEC__INIT;
    for (size_t i = 0; i < count; i++)
        pointers[i] = (Sandstorm__V1__Rlimit *)&limits[i];
    spec.rlimits = pointers;
    spec.n_rlimits = count;
    return command_rlimits_parse(&spec, ret, ret_count, err);
}

static Sandstorm__V1__Rlimit limit(const char *name, uint64_t soft, uint64_t hard)
{
    Sandstorm__V1__Rlimit made = SANDSTORM__V1__RLIMIT__INIT;
    made.name = (char *)name;
    made.soft = soft;
    made.hard = hard;
    return made;
}

static void refuse(const Sandstorm__V1__Rlimit *limits, size_t count, const char *words)
{
    struct err err = { 0 };
    struct spawn_rlimit parsed[COMMAND_RLIMITS_MAX];
    size_t parsed_count;
    cr_assert_eq(parse(limits, count, parsed, &parsed_count, &err), -1);
    cr_expect_eq(err.sys_errno, EINVAL);
    cr_expect(strstr(err.text, words), "%s", err.text);
}

Test(command_rlimit, every_name_has_a_resource_of_its_own)
{
    struct err err = { 0 };
    struct spawn_rlimit parsed[COMMAND_RLIMITS_MAX];
    Sandstorm__V1__Rlimit all[ELEMENTS(names)];
    size_t count;
    for (size_t i = 0; i < ELEMENTS(names); i++)
        all[i] = limit(names[i], i, i + 1);
    cr_assert_eq(parse(all, ELEMENTS(names), parsed, &count, &err), 0, "%s", err.text);
    cr_assert_eq(count, ELEMENTS(names));
    unsigned seen = 0;
    for (size_t i = 0; i < count; i++) {
        struct rlimit now;
        cr_expect_str_eq(parsed[i].name, names[i]);
        cr_expect_eq(parsed[i].limit.rlim_cur, i);
        cr_expect_eq(parsed[i].limit.rlim_max, i + 1);
        cr_expect_eq(getrlimit((unsigned)parsed[i].resource, &now), 0, "%s", names[i]);
        seen |= 1u << parsed[i].resource;
    }
    cr_expect_eq(seen, (1u << ELEMENTS(names)) - 1);
}

Test(command_rlimit, the_highest_value_is_no_limit)
{
    struct err err = { 0 };
    struct spawn_rlimit parsed[COMMAND_RLIMITS_MAX];
    size_t count;
    const Sandstorm__V1__Rlimit none = limit("core", UINT64_MAX, UINT64_MAX);
    cr_assert_eq(parse(&none, 1, parsed, &count, &err), 0);
    cr_expect_eq(parsed[0].limit.rlim_cur, RLIM_INFINITY);
}

Test(command_rlimit, what_makes_no_sense_is_named)
{
    const Sandstorm__V1__Rlimit unknown = limit("RLIMIT_NOFILE", 1, 1);
    refuse(&unknown, 1, "\"RLIMIT_NOFILE\"");
    const Sandstorm__V1__Rlimit empty = limit("", 1, 1);
    refuse(&empty, 1, "no resource limit \"\"");
    const Sandstorm__V1__Rlimit above = limit("nproc", 2, 1);
    refuse(&above, 1, "above its hard one");
    const Sandstorm__V1__Rlimit twice[] = { limit("core", 1, 1), limit("cpu", 1, 1),
                                            limit("core", 1, 1) };
    refuse(twice, 3, "\"core\" is given twice");
}

/* More of them than there are names can only repeat one. */
Test(command_rlimit, no_number_of_them_overflows)
{
    Sandstorm__V1__Rlimit many[64];
    for (size_t i = 0; i < ELEMENTS(many); i++)
        many[i] = limit(names[i % ELEMENTS(names)], 1, 1);
    refuse(many, ELEMENTS(many), "given twice");
}
