/* Amounts as people write them, and what they write by mistake. */
#include "cli/states.h"
#include "cli/units.h"

#include <criterion/criterion.h>
#include <string.h>

static struct err err;

#define REFUSED(call, part)                                                                        \
    do {                                                                                           \
        cr_expect_eq((call), -1);                                                                  \
        cr_expect_eq(err.code, ERR_INVALID);                                                       \
        cr_expect(strstr(err.text, part), "\"%s\" lacks \"%s\"", err.text, part);                  \
    } while (0)

Test(cli_units, sizes)
{
    uint64_t size;
    cr_expect(size_parse("0", &size, &err) == 0 && size == 0);
    cr_expect(size_parse("4096", &size, &err) == 0 && size == 4096);
    cr_expect(size_parse("64K", &size, &err) == 0 && size == 65536);
    cr_expect(size_parse("512M", &size, &err) == 0 && size == 512ull << 20);
    cr_expect(size_parse("2G", &size, &err) == 0 && size == 2ull << 30);
    cr_expect(size_parse("1T", &size, &err) == 0 && size == 1ull << 40);
    cr_expect(size_parse("18446744073709551615", &size, &err) == 0 && size == UINT64_MAX);
    static const char *const bad[] = { "",
                                       "K",
                                       "-1",
                                       "+1",
                                       " 1",
                                       "1 K",
                                       "1KB",
                                       "1.5G",
                                       "1k",
                                       "0x10",
                                       "18446744073709551616",
                                       "16777216T" };
    for (size_t i = 0; i < ELEMENTS(bad); i++)
        REFUSED(size_parse(bad[i], &size, &err), "512M");
}

Test(cli_units, cpus)
{
    uint64_t millis;
    cr_expect(cpus_parse("2", &millis, &err) == 0 && millis == 2000);
    cr_expect(cpus_parse("1.5", &millis, &err) == 0 && millis == 1500);
    cr_expect(cpus_parse("0.25", &millis, &err) == 0 && millis == 250);
    cr_expect(cpus_parse("0.001", &millis, &err) == 0 && millis == 1);
    static const char *const bad[] = { "",       "0",  "0.0", ".5",  "1.",
                                       "1.2345", "-1", "1,5", "two", "18446744073709551615" };
    for (size_t i = 0; i < ELEMENTS(bad); i++)
        REFUSED(cpus_parse(bad[i], &millis, &err), "1.5");
}

Test(cli_units, umasks_are_octal)
{
    unsigned mask;
    cr_expect(umask_parse("027", &mask, &err) == 0 && mask == 027);
    cr_expect(umask_parse("0", &mask, &err) == 0 && mask == 0);
    REFUSED(umask_parse("8", &mask, &err), "octal");
    REFUSED(umask_parse("1000", &mask, &err), "octal");
    REFUSED(umask_parse("", &mask, &err), "octal");
}

Test(cli_units, niceness)
{
    int nice;
    cr_expect(nice_parse("10", &nice, &err) == 0 && nice == 10);
    cr_expect(nice_parse("-20", &nice, &err) == 0 && nice == -20);
    REFUSED(nice_parse("20", &nice, &err), "-20 to 19");
    REFUSED(nice_parse("-21", &nice, &err), "-20 to 19");
    REFUSED(nice_parse("-", &nice, &err), "-20 to 19");
}

Test(cli_units, limits_of_setrlimit)
{
    char name[UNITS_RLIMIT_NAME_MAX];
    struct sandstorm_rlimit limit;
    cr_expect_eq(rlimit_parse("nofile=1024:4096", name, &limit, &err), 0);
    cr_expect(strcmp(limit.name, "nofile") == 0 && limit.soft == 1024 && limit.hard == 4096);
    cr_expect_eq(rlimit_parse("core=unlimited", name, &limit, &err), 0);
    cr_expect(limit.soft == UINT64_MAX && limit.hard == UINT64_MAX);
    cr_expect_eq(rlimit_parse("cpu=5:unlimited", name, &limit, &err), 0);
    cr_expect(limit.soft == 5 && limit.hard == UINT64_MAX);
    static const char *const bad[] = {
        "",           "nofile",    "nofile=",  "=3",           "nofile=a",
        "nofile=5:4", "nofile=5:", "NOFILE=5", "nofile=1:2:3", "averyveryverylongname=1"
    };
    for (size_t i = 0; i < ELEMENTS(bad); i++)
        REFUSED(rlimit_parse(bad[i], name, &limit, &err), "nofile=1024");
}

Test(cli_units, states_are_a_set_and_a_near_miss_is_guessed)
{
    static const char *const names[] = { "ordered", "running", "ended", NULL };
    unsigned states = 99;
    cr_expect(states_parse(NULL, names, &states, &err) == 0 && states == 0);
    cr_expect(states_parse("running,ended", names, &states, &err) == 0 &&
              states == (1u << 2 | 1u << 3));
    REFUSED(states_parse("runing", names, &states, &err), "did you mean \"running\"?");
    REFUSED(states_parse("xyzzyx", names, &states, &err), "ordered, running and ended");
    REFUSED(states_parse(",", names, &states, &err), "is none");
    REFUSED(states_parse("", names, &states, &err), "ordered,running");
}
