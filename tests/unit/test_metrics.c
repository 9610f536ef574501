/* What the kernel says about this VM, read from a proc directory of the test's own, from files that
 * are odd in every way we could think of, and once from the real one. */
#include "agent/metrics.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#define GOOD_STAT    "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3 4\ncpu1 1 2 3 4\nintr 5 6\n"
#define GOOD_MEMINFO "MemTotal:        2048 kB\nMemFree: 1 kB\nMemAvailable:    1024 kB\n"
#define GOOD_LOADAVG "1.25 0.50 0.10 1/100 4242\n"
#define GOOD_UPTIME  "86400.99 1000.00\n"
#define NET_HEADING                                                                                \
    "Inter-|   Receive                            |  Transmit\n"                                   \
    " face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n"
#define NET_LO   "    lo: 7000 10 0 0 0 0 0 0 7000 10 0 0 0 0 0 0\n"
#define NET_ETH0 "  eth0: 1500 10 0 0 0 0 0 3 900 8 0 0 0 0 0 0\n"
#define NET_LOW  "  low0:500 10 0 0 0 0 0 3 100 8 0 0 0 0 0 0\n"
#define GOOD_NET NET_HEADING NET_LO NET_ETH0 NET_LOW
#define GOOD_CPU "some avg10=12.34 avg60=1.00 avg300=0.50 total=12345\n"
#define GOOD_MEMORY                                                                                \
    "some avg10=1.02 avg60=0.00 avg300=0.00 total=7\nfull avg10=0.51 avg60=0.00 avg300=0.00 "      \
    "total=3\n"
#define GOOD_IO                                                                                    \
    "some avg10=100.00 avg60=0.00 avg300=0.00 total=7\nfull avg10=99.99 avg60=0.00 avg300=0.00 "   \
    "total=3\n"

/* A directory that looks like proc, removed at the end of the test. */
struct fake {
    char path[64];
    struct metrics_sampler sampler;
};

static void fake_write(const struct fake *fake, const char *name, const char *text)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", fake->path, name);
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    cr_assert_geq(fd, 0);
    cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static void fake_remove(const struct fake *fake, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", fake->path, name);
    cr_assert_eq(remove(path), 0);
}

static void fake_mkdir(const struct fake *fake, const char *name)
{
    char path[128];
    (void)snprintf(path, sizeof(path), "%s/%s", fake->path, name);
    cr_assert_eq(mkdir(path, 0700), 0);
}

static void fake_new(struct fake *fake)
{
    (void)strcpy(fake->path, "/tmp/test_metrics.XXXXXX");
    cr_assert_not_null(mkdtemp(fake->path));
    fake_write(fake, "stat", GOOD_STAT);
    fake_write(fake, "meminfo", GOOD_MEMINFO);
    fake_write(fake, "loadavg", GOOD_LOADAVG);
    fake_write(fake, "uptime", GOOD_UPTIME);
    fake_mkdir(fake, "net");
    fake_mkdir(fake, "pressure");
    fake_write(fake, "net/dev", GOOD_NET);
    fake_write(fake, "pressure/cpu", GOOD_CPU);
    fake_write(fake, "pressure/memory", GOOD_MEMORY);
    fake_write(fake, "pressure/io", GOOD_IO);
    metrics_init(&fake->sampler, fake->path, fake->path, fake->path);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *walk)
{
    (void)st, (void)type, (void)walk;
    return remove(path);
}

static void fake_done(struct fake *fake)
{
    (void)nftw(fake->path, remove_entry, 8, FTW_DEPTH | FTW_PHYS);
}

#define FAKE(name)                                                                                 \
    CLEANUP(fake_done) struct fake name;                                                           \
    fake_new(&name)

Test(metrics, every_file_ends_up_in_its_field)
{
    FAKE(fake);
    struct metrics_sample sample;
    struct err err = { 0 };
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, &err), 0, "%s", err.text);
    cr_expect_eq(sample.cpus, 2);
    cr_expect_eq(sample.load1_centi, 125);
    cr_expect_eq(sample.memory_total_bytes, 2048 * 1024);
    cr_expect_eq(sample.memory_available_bytes, 1024 * 1024);
    cr_expect_eq(sample.uptime_s, 86400);
    cr_expect_eq(sample.processes, 0);
    cr_expect_eq(sample.network_received_bytes, 2000, "without lo, which low0 is not");
    cr_expect_eq(sample.network_sent_bytes, 1000);
    cr_expect(sample.pressure_known);
    cr_expect_eq(sample.cpu_some, 1234);
    cr_expect_eq(sample.memory_some, 102);
    cr_expect_eq(sample.memory_full, 51);
    cr_expect_eq(sample.io_some, 10000);
    cr_expect_eq(sample.io_full, 9999);
    cr_expect_eq(sample.state_disk_total_bytes, 0, "it is the same filesystem");
    struct statvfs vfs;
    cr_assert_eq(statvfs(fake.path, &vfs), 0);
    cr_expect_eq(sample.disk_total_bytes, (uint64_t)vfs.f_blocks * vfs.f_frsize);
    cr_expect_leq(sample.disk_free_bytes, sample.disk_total_bytes);
    cr_expect_gt(sample.disk_free_bytes, 0);
}

/* Two samples, one after the other, from these two sums. */
static uint32_t rate_between(const char *first, const char *second)
{
    FAKE(fake);
    struct metrics_sample sample;
    fake_write(&fake, "stat", first);
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, NULL), 0);
    cr_assert_eq(sample.cpu_basis_points, 0, "the first sample has a rate");
    fake_write(&fake, "stat", second);
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, NULL), 0);
    return sample.cpu_basis_points;
}

Test(metrics, cpu_is_the_busy_share_since_the_previous_sample)
{
    cr_expect_eq(rate_between("cpu  100 0 100 800\n", "cpu  150 0 100 850\n"), 5000);
    cr_expect_eq(rate_between("cpu  0 0 0 1\n", "cpu  0 0 0 100\n"), 0);
    cr_expect_eq(rate_between("cpu  0 0 0 1\n", "cpu  0 0 100 1\n"), 10000);
    cr_expect_eq(rate_between("cpu  0 0 0 1\n", "cpu  1 0 0 3\n"), 3333);
}

Test(metrics, iowait_is_idle_and_guest_time_is_not_counted_twice)
{
    cr_expect_eq(rate_between("cpu  0 0 0 1 0 0 0 0 0 0\n", "cpu  0 0 0 1 100 0 0 0 0 0\n"), 0);
    cr_expect_eq(rate_between("cpu  0 0 0 1 0 0 0 0 0 0\n", "cpu  50 0 0 51 0 0 0 0 50 0\n"), 5000);
    cr_expect_eq(rate_between("cpu  0 0 0 1 0 0 0 0\n", "cpu  0 10 0 41 0 20 20 10\n"), 6000);
}

Test(metrics, counters_that_run_backwards_give_no_rate)
{
    cr_expect_eq(rate_between("cpu  100 0 100 800\n", "cpu  50 0 50 400\n"), 0);
    cr_expect_eq(rate_between("cpu  100 0 100 800\n", "cpu  100 0 100 800\n"), 0);
    cr_expect_eq(rate_between("cpu  100 0 0 800\n", "cpu  50 0 0 2000\n"), 0);
    cr_expect_eq(rate_between("cpu  100 0 0 800\n", "cpu  300 0 0 700\n"), 10000);
}

Test(metrics, counters_near_the_end_of_64_bits_do_not_overflow)
{
    cr_expect_eq(rate_between("cpu  0 0 0 1\n", "cpu  9000000000000000000 0 0 "
                                                "9000000000000000001\n"),
                 5000);
}

/* Samples with one file replaced; returns the error and fills the sample. */
static int sample_with(const char *name, const char *text, struct metrics_sample *ret_sample,
                       struct err *err)
{
    FAKE(fake);
    fake_write(&fake, name, text);
    return metrics_sample(&fake.sampler, ret_sample, err);
}

struct bad_case {
    const char *name, *text;
};

Test(metrics, odd_files_are_an_error_and_cost_only_their_own_field)
{
    static const struct bad_case cases[] = {
        { "stat", "" },
        { "stat", "cpu" },
        { "stat", "cpu \n" },
        { "stat", "cpu  1 2 3\n" },
        { "stat", "cpu  1 2 3 4" },
        { "stat", "cpu  1 2 3 4 " },
        { "stat", "cpu  1 2 -3 4\n" },
        { "stat", "cpu  1 2 0x3 4\n" },
        { "stat", "cpu  1 2 3 18446744073709551616\n" },
        { "stat", "cpu  1 2 3 18446744073709551615\n" },
        { "stat", "cpu0 1 2 3 4\n" },
        { "stat", "intr 1 2 3 4\n" },
        { "loadavg", "" },
        { "loadavg", "1\n" },
        { "loadavg", "1.2 3\n" },
        { "loadavg", "1.234 3\n" },
        { "loadavg", "-1.23 3\n" },
        { "loadavg", " 1.23 3\n" },
        { "loadavg", "1.23" },
        { "loadavg", "42949672.00 0.00\n" },
        { "loadavg", "99999999999999999999999.00 0.00\n" },
        { "uptime", "" },
        { "uptime", "abc\n" },
        { "uptime", "18446744073709551616.00 1.00\n" },
        { "uptime", "99999999999999999999.00 1.00\n" },
        { "meminfo", "" },
        { "meminfo", "MemTotal: 2048 kB\n" },
        { "meminfo", "MemTotal: 2048 kB\nMemAvailable: 1 MB\n" },
        { "meminfo", "MemTotal: 2048 kB\nMemAvailable: kB\n" },
        { "meminfo", "MemTotal: 2048 kB\nMemAvailable: 18014398509481984 kB\n" },
        { "meminfo", "MemTotal: 2048 kB\nMemAvailable: 99999999999999999999 kB\n" },
        { "net/dev", "" },
        { "net/dev", "Inter-| Receive\n" },
        { "net/dev", NET_ETH0 },
        { "net/dev", NET_HEADING "eth0\n" },
        { "net/dev", NET_HEADING "eth0:\n" },
        { "net/dev", NET_HEADING ": 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" },
        { "net/dev", NET_HEADING "eth 0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" },
        { "net/dev", NET_HEADING "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15\n" },
        { "net/dev", NET_HEADING "eth0: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16" },
        { "net/dev", NET_HEADING "eth0: -1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" },
        { "net/dev",
          NET_HEADING "eth0: 18446744073709551616 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" },
        { "net/dev", NET_HEADING NET_ETH0
          "eth1: 18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n" },
        { "net/dev", NET_HEADING NET_ETH0 "\n" },
        { "pressure/cpu", "" },
        { "pressure/cpu", "some\n" },
        { "pressure/cpu", "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n" },
        { "pressure/cpu", "some avg60=0.00 avg10=0.00\n" },
        { "pressure/cpu", "some avg10=0.0 avg60=0.00\n" },
        { "pressure/cpu", "some avg10=0.001 avg60=0.00\n" },
        { "pressure/cpu", "some avg10=-1.00 avg60=0.00\n" },
        { "pressure/cpu", "some avg10=nan avg60=0.00\n" },
        { "pressure/cpu", "some avg10=100.01 avg60=0.00\n" },
        { "pressure/cpu", "some avg10=18446744073709551616.00 avg60=0.00\n" },
        { "pressure/cpu", "some avg10=184467440737095517.00 avg60=0.00\n" },
        { "pressure/cpu", "\n\n\n\n\n\n\n\nsome avg10=1.00 avg60=0.00\n" },
    };
    for (size_t i = 0; i < ELEMENTS(cases); i++) {
        const char *name = cases[i].name;
        struct metrics_sample sample;
        struct err err = { 0 };
        cr_expect_eq(sample_with(name, cases[i].text, &sample, &err), -1, "case %zu", i);
        cr_expect_eq(err.code, ERR_INVALID, "case %zu", i);
        cr_expect_not_null(strstr(err.text, name), "case %zu: %s", i, err.text);
        cr_expect_eq(sample.cpus, strcmp(name, "stat") ? 2 : 0, "case %zu", i);
        cr_expect_eq(sample.load1_centi, strcmp(name, "loadavg") ? 125 : 0, "case %zu", i);
        cr_expect_eq(sample.uptime_s, strcmp(name, "uptime") ? 86400 : 0, "case %zu", i);
        cr_expect_eq(sample.memory_available_bytes, strcmp(name, "meminfo") ? 1024 * 1024 : 0,
                     "case %zu", i);
        cr_expect_eq(sample.network_received_bytes, strcmp(name, "net/dev") ? 2000 : 0, "case %zu",
                     i);
        cr_expect_eq(sample.network_sent_bytes, strcmp(name, "net/dev") ? 1000 : 0, "case %zu", i);
        cr_expect_eq(sample.cpu_some, strcmp(name, "pressure/cpu") ? 1234 : 0, "case %zu", i);
        cr_expect_eq(sample.memory_full, 51, "case %zu", i);
        cr_expect_gt(sample.disk_total_bytes, 0);
    }
}

Test(metrics, memory_that_is_half_there_is_half_reported)
{
    struct metrics_sample sample;
    struct err err = { 0 };
    cr_expect_eq(sample_with("meminfo", "MemTotal: 2048 kB\n", &sample, &err), -1);
    cr_expect_eq(sample.memory_total_bytes, 2048 * 1024);
    cr_expect_eq(sample.memory_available_bytes, 0);
}

Test(metrics, the_largest_values_pass)
{
    struct metrics_sample sample;
    cr_expect_eq(sample_with("loadavg", "42949671.99 0.00 0.00 1/1 1\n", &sample, NULL), 0);
    cr_expect_eq(sample.load1_centi, 4294967199u);
    cr_expect_eq(sample_with("uptime", "18446744073709551615.00 0.00\n", &sample, NULL), 0);
    cr_expect_eq(sample.uptime_s, UINT64_MAX);
}

Test(metrics, a_long_line_after_the_cpus_does_no_harm)
{
    static char text[20000];
    size_t used = (size_t)snprintf(text, sizeof(text), "cpu  1 2 3 4\ncpu0 1 2 3 4\nintr");
    while (used + 8 < sizeof(text))
        used += (size_t)snprintf(text + used, sizeof(text) - used, " 1");
    (void)snprintf(text + used, sizeof(text) - used, "\nctxt\n");
    struct metrics_sample sample;
    cr_expect_eq(sample_with("stat", text, &sample, NULL), 0);
    cr_expect_eq(sample.cpus, 1);
}

Test(metrics, a_kernel_without_pressure_is_no_error)
{
    FAKE(fake);
    struct metrics_sample sample;
    struct err err = { 0 };
    fake_remove(&fake, "pressure/memory");
    cr_expect_eq(metrics_sample(&fake.sampler, &sample, &err), 0, "%s", err.text);
    cr_expect(sample.pressure_known);
    cr_expect_eq(sample.cpu_some, 1234);
    cr_expect_eq(sample.memory_some, 0);
    fake_remove(&fake, "pressure/cpu");
    fake_remove(&fake, "pressure/io");
    fake_remove(&fake, "pressure");
    cr_expect_eq(metrics_sample(&fake.sampler, &sample, &err), 0, "%s", err.text);
    cr_expect_not(sample.pressure_known);
    cr_expect_eq(sample.io_some, 0);
}

Test(metrics, pressure_that_is_half_there_costs_its_own_file)
{
    struct metrics_sample sample;
    struct err err = { 0 };
    cr_expect_eq(sample_with("pressure/memory", GOOD_CPU, &sample, &err), -1, "without full");
    cr_expect_not_null(strstr(err.text, "pressure/memory"), "%s", err.text);
    cr_expect(sample.pressure_known);
    cr_expect_eq(sample.memory_some, 0);
    cr_expect_eq(sample.cpu_some, 1234);
    cr_expect_eq(sample.io_full, 9999);
    /* Newer kernels say "full" about the CPU too, and may say more some day. */
    cr_expect_eq(sample_with("pressure/cpu", "irq avg10=3.00 avg60=0.00\n" GOOD_IO, &sample, &err),
                 0, "%s", err.text);
    cr_expect_eq(sample.cpu_some, 10000);
}

Test(metrics, network_counters_reach_the_end_of_64_bits_and_lo_never_counts)
{
    struct metrics_sample sample;
    cr_expect_eq(sample_with("net/dev",
                             NET_HEADING
                             "lo: 18446744073709551615 2 3 4 5 6 7 8 9 10 11 12 13 14 "
                             "15 16\neth0: 18446744073709551614 2 3 4 5 6 7 8 9 10 11 "
                             "12 13 14 15 16 17\n  w: 1 0 0 0 0 0 0 0 1 0 0 0 0 0 0 0\n",
                             &sample, NULL),
                 0);
    cr_expect_eq(sample.network_received_bytes, UINT64_MAX);
    cr_expect_eq(sample.network_sent_bytes, 10);
    cr_expect_eq(sample_with("net/dev", NET_HEADING, &sample, NULL), 0, "a namespace of its own");
    cr_expect_eq(sample.network_received_bytes, 0);
}

/* One interface more than is understood, and a line that does not end. */
Test(metrics, endless_network_files_are_given_up)
{
    static char text[4097 * 48 + 1024];
    struct metrics_sample sample;
    struct err err = { 0 };
    size_t used = (size_t)snprintf(text, sizeof(text), NET_HEADING);
    for (unsigned i = 0; i < 4096; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used,
                                 "v%u: 1 0 0 0 0 0 0 0 2 0 0 0 0 0 0 0\n", i);
    cr_expect_eq(sample_with("net/dev", text, &sample, &err), 0, "%s", err.text);
    cr_expect_eq(sample.network_sent_bytes, 8192);
    (void)snprintf(text + used, sizeof(text) - used, "%s", NET_ETH0);
    cr_expect_eq(sample_with("net/dev", text, &sample, &err), -1);
    cr_expect_eq(sample.network_sent_bytes, 0);
    (void)memset(text, '7', 100000);
    (void)memcpy(text, NET_HEADING "eth0: ", sizeof(NET_HEADING "eth0: ") - 1);
    text[100000] = '\0';
    cr_expect_eq(sample_with("net/dev", text, &sample, &err), -1);
    cr_expect_eq(err.code, ERR_INVALID);
    cr_expect_eq(sample.load1_centi, 125);
}

Test(metrics, another_filesystem_for_the_state_is_measured_too)
{
    FAKE(fake);
    struct metrics_sample sample;
    struct err err = { 0 };
    struct statvfs vfs;
    /* On every Linux, and never the one that /tmp is on. */
    cr_assert_eq(statvfs("/dev", &vfs), 0);
    fake.sampler.state = "/dev";
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, &err), 0, "%s", err.text);
    cr_expect_eq(sample.state_disk_total_bytes, (uint64_t)vfs.f_blocks * vfs.f_frsize);
    cr_expect_gt(sample.state_disk_total_bytes, 0);
    fake.sampler.state = "/nonexistent/state";
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, &err), -1);
    cr_expect_not_null(strstr(err.text, "/nonexistent/state"), "%s", err.text);
    cr_expect_eq(sample.state_disk_total_bytes, 0);
    cr_expect_eq(sample.network_sent_bytes, 1000);
}

Test(metrics, processes_are_the_directories_with_a_number_for_a_name)
{
    FAKE(fake);
    fake_mkdir(&fake, "1");
    fake_mkdir(&fake, "4194304");
    fake_mkdir(&fake, "12x");
    fake_mkdir(&fake, "self");
    fake_write(&fake, "77", "a file, not a process");
    struct metrics_sample sample;
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, NULL), 0);
    cr_expect_eq(sample.processes, 2);
}

Test(metrics, the_first_of_several_failures_is_the_one_told)
{
    FAKE(fake);
    fake_remove(&fake, "meminfo");
    fake_remove(&fake, "uptime");
    fake.sampler.disk = "/nonexistent/disk";
    struct metrics_sample sample;
    struct err err = { 0 };
    cr_expect_eq(metrics_sample(&fake.sampler, &sample, &err), -1);
    cr_expect_eq(err.code, ERR_SYSTEM);
    cr_expect_eq(err.sys_errno, ENOENT);
    cr_expect_not_null(strstr(err.text, "meminfo"), "%s", err.text);
    cr_expect_eq(sample.load1_centi, 125);
    cr_expect_eq(sample.disk_total_bytes, 0);
}

Test(metrics, a_failed_cpu_sample_keeps_the_previous_counters)
{
    FAKE(fake);
    struct metrics_sample sample;
    fake_write(&fake, "stat", "cpu  100 0 100 800\n");
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, NULL), 0);
    fake_write(&fake, "stat", "garbage\n");
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, NULL), -1);
    fake_write(&fake, "stat", "cpu  150 0 100 850\n");
    cr_assert_eq(metrics_sample(&fake.sampler, &sample, NULL), 0);
    cr_expect_eq(sample.cpu_basis_points, 5000);
}

Test(metrics, without_proc_the_disk_is_still_measured)
{
    struct metrics_sampler sampler;
    metrics_init(&sampler, "/nonexistent/proc", "/", NULL);
    struct metrics_sample sample;
    struct err err = { 0 };
    cr_expect_eq(metrics_sample(&sampler, &sample, &err), -1);
    cr_expect_not_null(strstr(err.text, "/nonexistent/proc"));
    cr_expect_gt(sample.disk_total_bytes, 0);
}

Test(metrics, the_real_kernel_is_understood)
{
    struct metrics_sampler sampler;
    metrics_init(&sampler, "/proc", "/", "/proc");
    struct metrics_sample sample;
    struct err err = { 0 };
    cr_assert_eq(metrics_sample(&sampler, &sample, &err), 0, "%s", err.text);
    cr_expect_geq(sample.cpus, 1);
    cr_expect_geq(sample.processes, 1);
    cr_expect_gt(sample.memory_total_bytes, sample.memory_available_bytes);
}
