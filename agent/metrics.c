/* Owns the numbers in a heartbeat that the kernel knows. Handed a sampler by the link once per
 * heartbeat; reads a few files under proc(5) and statvfs(3), keeps the previous CPU counters and
 * hands back plain numbers. Every file is a step of its own in one table, so that one odd file
 * costs one field and not the heartbeat. More steps are in agent/metrics_net.c and
 * agent/metrics_pressure.c; next: the link's heartbeat. */
#include "agent/metrics-internal.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

FILE *metrics_open(const struct metrics_sampler *sampler, const char *name, struct err *err)
{
    char path[PATH_MAX];
    int size = snprintf(path, sizeof(path), "%s/%s", sampler->proc, name);
    FILE *file = NULL;
    errno = ENAMETOOLONG;
    if (size >= 0 && (size_t)size < sizeof(path))
        file = fopen(path, "re");
    if (!file) {
        int failure = errno;
        (void)err_errno(err, failure, "cannot open %s/%s (is proc mounted?)", sampler->proc, name);
        errno = failure;
    }
    return file;
}

int metrics_malformed(const struct metrics_sampler *sampler, const char *name, struct err *err)
{
    return err_set(err, ERR_INVALID, "cannot understand %s/%s: report this kernel's format",
                   sampler->proc, name);
}

bool metrics_parse_u64(const char **at, uint64_t *ret)
{
    const char *p = *at;
    uint64_t value = 0;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            return false;
    *at = p;
    *ret = value;
    return true;
}

void metrics_skip_spaces(const char **at)
{
    while (**at == ' ')
        (*at)++;
}

bool metrics_parse_centi(const char **at, char end, uint64_t *ret_whole, uint64_t *ret_centi)
{
    const char *p = *at;
    uint64_t whole, centi;
    if (!metrics_parse_u64(&p, &whole) || *p++ != '.')
        return false;
    const char *decimals = p;
    if (!metrics_parse_u64(&p, &centi) || p != decimals + 2 || *p != end)
        return false;
    *at = p;
    *ret_whole = whole;
    *ret_centi = centi;
    return true;
}

/* The first eight columns are user, nice, system, idle, iowait, irq, softirq and steal; what comes
 * after them (guest time) is already part of user and nice. Old kernels have only four. */
static bool parse_cpu_line(const char *line, uint64_t *ret_busy, uint64_t *ret_total)
{
    const char *at = line + strlen("cpu");
    uint64_t total = 0, idle = 0;
    unsigned column = 0;
    for (metrics_skip_spaces(&at); column < 8 && *at != '\n'; column++, metrics_skip_spaces(&at)) {
        uint64_t value;
        if (!metrics_parse_u64(&at, &value) || (*at != ' ' && *at != '\n'))
            return false;
        if (__builtin_add_overflow(total, value, &total))
            return false;
        if (column == 3 || column == 4)
            idle += value;
    }
    if (column < 4)
        return false;
    *ret_busy = total - idle;
    *ret_total = total;
    return true;
}

/* iowait and idle may run backwards, proc_stat(5), and a VM that was moved may restart all of
 * them: then this sample has no rate, and the next one has. */
static uint32_t basis_points(const struct metrics_sampler *sampler, uint64_t busy, uint64_t total)
{
    if (sampler->cpu_total == 0 || total <= sampler->cpu_total || busy <= sampler->cpu_busy)
        return 0;
    busy -= sampler->cpu_busy;
    total -= sampler->cpu_total;
    if (busy >= total)
        return 10000;
    if (total > UINT64_MAX / 10000) {
        busy /= 10000;
        total /= 10000;
    }
    return (uint32_t)(busy * 10000 / total);
}

/* The lines of the CPUs come first: "cpu " is their sum, "cpu0" and so on are the online ones. */
static int sample_cpu(struct metrics_sampler *sampler, struct metrics_sample *sample,
                      struct err *err)
{
    CLEANUP_METRICS_FILE FILE *file = metrics_open(sampler, "stat", err);
    if (!file)
        return -1;
    char line[METRICS_LINE_MAX];
    uint64_t busy, total;
    if (!fgets(line, sizeof(line), file) || strncmp(line, "cpu ", 4) != 0 ||
        !parse_cpu_line(line, &busy, &total))
        return metrics_malformed(sampler, "stat", err);
    while (fgets(line, sizeof(line), file) && strncmp(line, "cpu", 3) == 0)
        sample->cpus++;
    sample->cpu_basis_points = basis_points(sampler, busy, total);
    sampler->cpu_busy = busy;
    sampler->cpu_total = total;
    return 0;
}

/* "MemTotal:       16384 kB" */
static bool parse_memory_line(const char *line, const char *key, uint64_t *ret_bytes)
{
    if (strncmp(line, key, strlen(key)) != 0)
        return false;
    const char *at = line + strlen(key);
    uint64_t kib, bytes;
    metrics_skip_spaces(&at);
    if (!metrics_parse_u64(&at, &kib) || strcmp(at, " kB\n") != 0 ||
        __builtin_mul_overflow(kib, 1024u, &bytes))
        return false;
    *ret_bytes = bytes;
    return true;
}

static int sample_memory(struct metrics_sampler *sampler, struct metrics_sample *sample,
                         struct err *err)
{
    CLEANUP_METRICS_FILE FILE *file = metrics_open(sampler, "meminfo", err);
    if (!file)
        return -1;
    char line[METRICS_LINE_MAX];
    bool total = false, available = false;
    while (!(total && available) && fgets(line, sizeof(line), file)) {
        total |= parse_memory_line(line, "MemTotal:", &sample->memory_total_bytes);
        available |= parse_memory_line(line, "MemAvailable:", &sample->memory_available_bytes);
    }
    return total && available ? 0 : metrics_malformed(sampler, "meminfo", err);
}

/* "123.45 ": the kernel prints both files with exactly two decimals. */
static int read_centi(const struct metrics_sampler *sampler, const char *name, uint64_t *ret_whole,
                      uint64_t *ret_centi, struct err *err)
{
    CLEANUP_METRICS_FILE FILE *file = metrics_open(sampler, name, err);
    if (!file)
        return -1;
    char line[METRICS_LINE_MAX];
    const char *at = line;
    if (!fgets(line, sizeof(line), file) || !metrics_parse_centi(&at, ' ', ret_whole, ret_centi))
        return metrics_malformed(sampler, name, err);
    return 0;
}

static int sample_load(struct metrics_sampler *sampler, struct metrics_sample *sample,
                       struct err *err)
{
    uint64_t whole, centi;
    if (read_centi(sampler, "loadavg", &whole, &centi, err) < 0)
        return -1;
    if (whole > (UINT32_MAX - 99) / 100)
        return metrics_malformed(sampler, "loadavg", err);
    sample->load1_centi = (uint32_t)(whole * 100 + centi);
    return 0;
}

static int sample_uptime(struct metrics_sampler *sampler, struct metrics_sample *sample,
                         struct err *err)
{
    uint64_t centi;
    return read_centi(sampler, "uptime", &sample->uptime_s, &centi, err);
}

static bool is_process(DIR *dir, const struct dirent *entry)
{
    if (entry->d_name[strspn(entry->d_name, "0123456789")] != '\0')
        return false;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type == DT_DIR;
    struct stat st;
    return fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static int sample_processes(struct metrics_sampler *sampler, struct metrics_sample *sample,
                            struct err *err)
{
    DIR *dir = opendir(sampler->proc);
    if (!dir)
        return err_errno(err, errno, "cannot list %s (is proc mounted?)", sampler->proc);
    uint32_t count = 0;
    const struct dirent *entry;
    while (errno = 0, (entry = readdir(dir)) != NULL)
        count += is_process(dir, entry);
    int failure = errno;
    (void)closedir(dir);
    if (failure != 0)
        return err_errno(err, failure, "cannot list %s", sampler->proc);
    sample->processes = count;
    return 0;
}

static uint64_t multiply_saturating(uint64_t a, uint64_t b)
{
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* Free is what an ordinary user can still fill, as df(1) says it; the reserve of root is not. */
static int measure(const char *path, uint64_t *ret_total, uint64_t *ret_free, struct err *err)
{
    struct statvfs vfs;
    if (statvfs(path, &vfs) < 0)
        return err_errno(err, errno, "cannot measure the filesystem of %s", path);
    *ret_total = multiply_saturating(vfs.f_blocks, vfs.f_frsize);
    *ret_free = multiply_saturating(vfs.f_bavail, vfs.f_frsize);
    return 0;
}

static int sample_disk(struct metrics_sampler *sampler, struct metrics_sample *sample,
                       struct err *err)
{
    return measure(sampler->disk, &sample->disk_total_bytes, &sample->disk_free_bytes, err);
}

/* The numbers of one filesystem are not said twice. */
static int sample_state_disk(struct metrics_sampler *sampler, struct metrics_sample *sample,
                             struct err *err)
{
    struct stat disk, state;
    if (!sampler->state)
        return 0;
    if (stat(sampler->disk, &disk) < 0 || stat(sampler->state, &state) < 0)
        return err_errno(err, errno, "cannot tell which filesystem %s is on", sampler->state);
    if (disk.st_dev == state.st_dev)
        return 0;
    return measure(sampler->state, &sample->state_disk_total_bytes, &sample->state_disk_free_bytes,
                   err);
}

void metrics_init(struct metrics_sampler *sampler, const char *proc, const char *disk,
                  const char *state)
{
    assert(proc && disk);
    *sampler = (struct metrics_sampler){ .proc = proc, .disk = disk, .state = state };
}

int metrics_sample(struct metrics_sampler *sampler, struct metrics_sample *ret, struct err *err)
{
    static int (*const steps[])(struct metrics_sampler *, struct metrics_sample *, struct err *) = {
        sample_cpu,        sample_memory,          sample_load,
        sample_uptime,     sample_processes,       sample_disk,
        sample_state_disk, metrics_sample_network, metrics_sample_pressure,
    };
    struct metrics_sample sample = { 0 };
    int result = 0;
    for (size_t i = 0; i < ELEMENTS(steps); i++)
        if (steps[i](sampler, &sample, result == 0 ? err : NULL) < 0)
            result = -1;
    *ret = sample;
    return result;
}
