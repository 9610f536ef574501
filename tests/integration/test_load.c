/* Many commands, one after the other and all at once: nothing may pile up. Zombies, open files and
 * memory of the three daemons are compared before and after. Uses the client library, with one
 * connection for all, so that what is measured are the commands. */
#include "tests/harness/fixture.h"

#include "client/sandstorm.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define SEQUENTIAL 1000u
#define CONCURRENT 200u
#define WARM_UP    200u
#define ROUNDS     3u
#define BARRIERS   100u
/* Growth of resident memory that is no leak. One after the other: the runner's ring of released
 * ids fills, at about 100 bytes each. At once: an allocator keeps about as much as one round holds,
 * 200 times 50,000 bytes; a leak would show three times, once for each round. */
#define SLACK_SEQUENTIAL_KIB 2048
#define SLACK_CONCURRENT_KIB (12 * 1024)

#ifdef SANDSTORM_SANITIZED
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

TestSuite(load, .init = fixture_start, .fini = fixture_stop);

/* Commands. */

static struct sandstorm_client *connect_client(void)
{
    char endpoint[64];
    struct sandstorm_client *client = NULL;
    struct sandstorm_error error;
    cluster_endpoint(fixture(), endpoint, sizeof(endpoint));
    const struct sandstorm_client_options options = { .endpoint = endpoint,
                                                      .identity_dir = fixture()->admin };
    cr_assert_eq(sandstorm_client_new(&options, &client, &error), 0, "%s", error.text);
    return client;
}

static void count_bytes(void *userdata, int stream, const void *data, size_t size)
{
    (void)data;
    if (stream == 1)
        *(size_t *)userdata += size;
}

static struct sandstorm_exec *start_command(struct sandstorm_client *client, const char *shell,
                                            size_t *bytes)
{
    struct sandstorm_exec *exec = NULL;
    struct sandstorm_error error;
    const struct sandstorm_exec_options options = {
        .spec = { .sandbox = BOX, .shell = shell },
        .streams = { .stdin_fd = -1,
                     .stdout_fd = -1,
                     .stderr_fd = -1,
                     .output = count_bytes,
                     .userdata = bytes },
    };
    cr_assert_eq(sandstorm_exec_start(client, &options, &exec, &error), 0, "%s", error.text);
    return exec;
}

static void finish_command(struct sandstorm_exec *exec, unsigned code)
{
    struct sandstorm_outcome outcome;
    struct sandstorm_error error;
    cr_assert_eq(sandstorm_exec_wait(exec, &outcome, &error), 0, "%s", error.text);
    cr_assert_eq(outcome.result, SANDSTORM_RESULT_EXITED);
    cr_assert_eq(outcome.exit_code, code);
    sandstorm_exec_free(exec);
}

static void run_sequential(struct sandstorm_client *client, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        size_t bytes = 0;
        finish_command(start_command(client, "echo 1234567; exit 3", &bytes), 3);
        cr_assert_eq(bytes, 8);
    }
}

static void run_concurrent(struct sandstorm_client *client, unsigned count)
{
    struct sandstorm_exec *execs[CONCURRENT];
    size_t bytes[CONCURRENT] = { 0 };
    /* All of them run at once: each waits for the file. */
    char shell[256];
    (void)snprintf(shell, sizeof(shell),
                   "while [ ! -e %s/go ]; do sleep 0.2; done; head -c 50000 /dev/zero; exit 5",
                   fixture()->dir);
    (void)unlink(fixture_path("go"));
    for (unsigned i = 0; i < count; i++)
        execs[i] = start_command(client, shell, &bytes[i]);
    fixture_touch("go");
    for (unsigned i = 0; i < count; i++) {
        finish_command(execs[i], 5);
        cr_assert_eq(bytes[i], 50000, "command %u sent %zu bytes", i, bytes[i]);
    }
}

/* Measures. */

struct measure {
    unsigned files, children;
    long resident_kib;
};

static struct service *daemon_at(unsigned index)
{
    struct service *const services[] = { fixture()->orchestrator, fixture_box()->link,
                                         fixture_box()->runner };
    return services[index];
}
#define DAEMONS 3u

static unsigned count_files(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    while (readdir(dir))
        count++;
    (void)closedir(dir);
    return count - 2;
}

static unsigned count_children(pid_t pid)
{
    char path[64];
    unsigned count = 0;
    long child;
    (void)snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    while (fscanf(file, "%ld", &child) == 1)
        count++;
    (void)fclose(file);
    return count;
}

static long read_resident_kib(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", pid);
    FILE *file = fopen(path, "re");
    cr_assert_not_null(file);
    while (kib < 0 && fgets(line, sizeof(line), file))
        if (sscanf(line, "RssAnon: %ld", &kib) != 1)
            kib = -1;
    (void)fclose(file);
    return kib;
}

static void measure(struct measure ret[DAEMONS])
{
    for (unsigned i = 0; i < DAEMONS; i++) {
        pid_t pid = proc_pid(service_proc(daemon_at(i)));
        ret[i] = (struct measure){ count_files(pid), count_children(pid), read_resident_kib(pid) };
    }
}

static bool same_files(const struct measure before[DAEMONS], const struct measure after[DAEMONS])
{
    for (unsigned i = 0; i < DAEMONS; i++)
        if (after[i].files != before[i].files || after[i].children != 0)
            return false;
    return true;
}

/* The last command's own traces go when the one after it is under way; so a few more are run until
 * everything is as it was. */
static void assert_nothing_piled_up(struct sandstorm_client *client,
                                    const struct measure before[DAEMONS], long slack_kib)
{
    struct measure after[DAEMONS];
    measure(after);
    for (unsigned i = 0; i < BARRIERS && !same_files(before, after); i++) {
        run_sequential(client, 1);
        measure(after);
    }
    for (unsigned i = 0; i < DAEMONS; i++) {
        const char *name = service_name(daemon_at(i));
        cr_assert_eq(after[i].children, 0, "%s has %u children", name, after[i].children);
        cr_assert_eq(after[i].files, before[i].files, "%s had %u open files and has %u", name,
                     before[i].files, after[i].files);
        /* A sanitizer keeps what was freed, to find late uses of it. */
        if (!SANITIZED)
            cr_assert_leq(after[i].resident_kib, before[i].resident_kib + slack_kib,
                          "%s grew from %ld to %ld KiB", name, before[i].resident_kib,
                          after[i].resident_kib);
    }
}

Test(load, a_thousand_commands_in_a_row_leave_nothing)
{
    struct measure before[DAEMONS];
    struct sandstorm_client *client = connect_client();
    run_sequential(client, WARM_UP);
    measure(before);
    run_sequential(client, SEQUENTIAL);
    assert_nothing_piled_up(client, before, SLACK_SEQUENTIAL_KIB);
    sandstorm_client_free(client);
}

Test(load, two_hundred_commands_at_once_leave_nothing)
{
    struct measure before[DAEMONS];
    struct sandstorm_client *client = connect_client();
    for (unsigned i = 0; i < ROUNDS; i++)
        run_concurrent(client, CONCURRENT);
    run_sequential(client, 10);
    measure(before);
    for (unsigned i = 0; i < ROUNDS; i++)
        run_concurrent(client, CONCURRENT);
    assert_nothing_piled_up(client, before, SLACK_CONCURRENT_KIB);
    sandstorm_client_free(client);
}
