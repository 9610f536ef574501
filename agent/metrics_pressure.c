/* Pressure stall information for a heartbeat: the share of the last ten seconds in which tasks
 * waited for CPU, memory or I/O, from /proc/pressure; see Documentation/accounting/psi.rst of the
 * kernel. Many kernels have none, or have it switched off, and that is no error. A step of
 * agent/metrics.c; calls nobody else. */
#include "agent/metrics-internal.h"

#include <errno.h>
#include <string.h>

/* "some" and "full"; a kernel that says more is asked about these two. */
#define PRESSURE_LINES_MAX 8u
#define ALL_OF_THE_TIME    10000u

/* "some avg10=1.23 avg60=...": hundredths of a per cent, at most all of the time. */
static bool parse_line(const char *line, const char *start, uint32_t *ret)
{
    const char *at = line + strlen(start);
    uint64_t whole, centi;
    if (strncmp(line, start, strlen(start)) != 0 ||
        !metrics_parse_centi(&at, ' ', &whole, &centi) || whole > ALL_OF_THE_TIME / 100 ||
        whole * 100 + centi > ALL_OF_THE_TIME)
        return false;
    *ret = (uint32_t)(whole * 100 + centi);
    return true;
}

/* `needed` says whether there must be a "full". 0 also when the kernel does not have the file:
 * ENOENT when it was built without, EOPNOTSUPP when it was started without. */
static int read_pressure(const struct metrics_sampler *sampler, const char *name, uint32_t *some,
                         uint32_t *full, bool needed, bool *known, struct err *err)
{
    CLEANUP_METRICS_FILE FILE *file = metrics_open(sampler, name, err);
    if (!file)
        return errno == ENOENT || errno == EOPNOTSUPP ? 0 : -1;
    char line[METRICS_LINE_MAX];
    uint32_t some_value = 0, full_value = 0;
    bool has_some = false, has_full = !needed;
    errno = 0;
    for (unsigned i = 0; i < PRESSURE_LINES_MAX && fgets(line, sizeof(line), file); i++) {
        has_some |= parse_line(line, "some avg10=", &some_value);
        has_full |= parse_line(line, "full avg10=", &full_value);
    }
    if (ferror(file) && errno == EOPNOTSUPP)
        return 0;
    if (!has_some || !has_full)
        return metrics_malformed(sampler, name, err);
    *some = some_value;
    *full = full_value;
    *known = true;
    return 0;
}

/* Each file is a measure of its own: one that is odd costs its own fields. For the whole system
 * "full" is always 0 for the CPU: somebody has it. */
int metrics_sample_pressure(struct metrics_sampler *sampler, struct metrics_sample *sample,
                            struct err *err)
{
    bool *known = &sample->pressure_known;
    uint32_t ignored;
    int r = read_pressure(sampler, "pressure/cpu", &sample->cpu_some, &ignored, false, known, err);
    if (read_pressure(sampler, "pressure/memory", &sample->memory_some, &sample->memory_full, true,
                      known, r == 0 ? err : NULL) < 0)
        r = -1;
    if (read_pressure(sampler, "pressure/io", &sample->io_some, &sample->io_full, true, known,
                      r == 0 ? err : NULL) < 0)
        r = -1;
    return r;
}
