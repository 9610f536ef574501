/* The agent's status file: written, read back, and said in words. */
#include "agent/status.h"
#include "common/file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define OK(call) cr_assert_eq((call), 0, "%s", err.text)
#define NOW      1795000000000 /* 2026-11-18 11:06:40 UTC */
#define MINUTE   60000
#define HOUR     (60 * MINUTE)

static char path[64];
static char directory[] = "/tmp/test-agent-status-XXXXXX";
static struct err err;

static void set_up(void)
{
    cr_assert(mkdtemp(directory));
    (void)snprintf(path, sizeof(path), "%s/status.json", directory);
}

static void tear_down(void)
{
    (void)unlink(path);
    (void)rmdir(directory);
}

/* cppcheck-suppress unknownMacro */
TestSuite(agent_status, .init = set_up, .fini = tear_down, .timeout = 30);

static struct agent_status online(void)
{
    return (struct agent_status){
        .written_unix_ms = NOW - MINUTE,
        .pid = 1234,
        .boot_id = "boot",
        .sandbox_id = "web-1",
        .endpoint = "orch.example.com:5000",
        .state = "online",
        .since_unix_ms = NOW - 2 * HOUR,
        .certificate_not_after_unix_ms = NOW + 19 * HOUR,
        .clock_known = true,
        .clock_skew_ms = 20,
        .agent_version = "0.1.0",
    };
}

static char *words(const struct agent_status *status, bool running, int expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    cr_expect_eq(status_print(status, running, NOW, out), expected);
    (void)fclose(out);
    return text;
}

static void expect_words(const struct agent_status *status, bool running, int expected,
                         const char *text)
{
    CLEANUP_FREE char *got = words(status, running, expected);
    cr_expect(strstr(got, text), "%s", got);
}

Test(agent_status, what_is_written_is_read_back)
{
    const struct agent_status before = online();
    struct agent_status after;
    struct stat st;
    (void)memset(&after, 'z', sizeof(after));
    OK(status_write(path, &before, &err));
    OK(status_read(path, &after, &err));
    cr_expect_eq(after.written_unix_ms, before.written_unix_ms);
    cr_expect_eq(after.pid, before.pid);
    cr_expect_str_eq(after.boot_id, before.boot_id);
    cr_expect_str_eq(after.sandbox_id, before.sandbox_id);
    cr_expect_str_eq(after.endpoint, before.endpoint);
    cr_expect_str_eq(after.state, before.state);
    cr_expect_eq(after.since_unix_ms, before.since_unix_ms);
    cr_expect_str_eq(after.last_error, "");
    cr_expect_eq(after.last_error_unix_ms, 0);
    cr_expect_eq(after.certificate_not_after_unix_ms, before.certificate_not_after_unix_ms);
    cr_expect(after.clock_known);
    cr_expect_eq(after.clock_skew_ms, 20);
    cr_expect_str_eq(after.agent_version, "0.1.0");
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_eq(st.st_mode & 0777, 0644, "anybody may ask");
}

Test(agent_status, the_longest_texts_fit)
{
    struct agent_status status = online(), after;
    (void)memset(status.last_error, '"', sizeof(status.last_error) - 1);
    (void)memset(status.endpoint, 'e', sizeof(status.endpoint) - 1);
    OK(status_write(path, &status, &err));
    OK(status_read(path, &after, &err));
    cr_expect_str_eq(after.last_error, status.last_error);
    cr_expect_str_eq(after.endpoint, status.endpoint);
}

Test(agent_status, no_file_is_not_found_and_other_files_are_refused)
{
    struct agent_status status = { .pid = 77 };
    cr_expect_eq(status_read(path, &status, &err), -1);
    cr_expect_eq(err.code, ERR_NOT_FOUND);
    static const char *const rows[] = { "", "{}", "[]", "{\"pid\":\"1\"}", "nonsense" };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        OK(file_write_atomic(path, rows[i], strlen(rows[i]), 0600, &err));
        cr_expect_eq(status_read(path, &status, &err), -1, "%s", rows[i]);
        cr_expect_eq(err.code, ERR_INVALID);
    }
    cr_expect_eq(status.pid, 77);
}

/* Every field of the first version is needed, those that came later are not, and each that is there
 * has its own form. */
Test(agent_status, a_field_of_another_form_is_refused)
{
    const struct agent_status status = online();
    struct agent_status after;
    CLEANUP_FREE char *text = NULL;
    size_t size;
    OK(status_write(path, &status, &err));
    OK(file_read(path, 65536, &text, &size, &err));
    unsigned fields = 0, needed = 0;
    for (char *colon = text; (colon = strstr(colon, "\": ")); colon++) {
        char kept = colon[-1];
        colon[-1] = '~';
        OK(file_write_atomic(path, text, size, 0600, &err));
        needed += status_read(path, &after, &err) < 0;
        colon[-1] = kept;
        fields++;
        cr_expect_eq(needed, fields < 13 ? fields : 13, "without %s", colon - 6);
    }
    cr_expect_eq(fields, 19);
    static const struct {
        const char *from, *to;
    } rows[] = { { "\"attempts_failed\": 0", "\"attempts_failed\": N" },
                 { "1234", "12.4" },
                 { "\"boot\"", "123456" },
                 { "true", "1111" } };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        char *at = strstr(text, rows[i].from);
        cr_assert_not_null(at);
        (void)memcpy(at, rows[i].to, strlen(rows[i].to));
        OK(file_write_atomic(path, text, size, 0600, &err));
        cr_expect_eq(status_read(path, &after, &err), -1, "%s", rows[i].to);
        (void)memcpy(at, rows[i].from, strlen(rows[i].from));
    }
    OK(file_write_atomic(path, text, size, 0600, &err));
    OK(status_read(path, &after, &err));
}

Test(agent_status, online_is_said_in_two_lines)
{
    const struct agent_status status = online();
    CLEANUP_FREE char *got = words(&status, true, 0);
    cr_expect_str_eq(got, "web-1 is online at orch.example.com:5000, for 2 h now.\n"
                          "Certificate valid until 2026-11-19 06:06 UTC (19 h).  Clock: 0.02 s "
                          "ahead of the orchestrator.\n");
}

Test(agent_status, which_limits_can_be_enforced_is_said_where_it_is_known)
{
    struct agent_status status = online();
    (void)snprintf(status.enforces, sizeof(status.enforces), "memory, pids");
    CLEANUP_FREE char *some = words(&status, true, 0);
    cr_expect(strstr(some, "can be enforced here: memory, pids.\n"), "%s", some);
    (void)snprintf(status.enforces, sizeof(status.enforces), "none");
    CLEANUP_FREE char *none = words(&status, true, 0);
    cr_expect(strstr(none, "No limits of commands"), "%s", none);
}

/* The file that an agent of the version before has left: an upgrade must not break `status`. */
Test(agent_status, a_file_of_the_version_before_is_read)
{
    static const char file[] =
        "{\"written_unix_ms\": 1, \"pid\": 2, \"boot_id\": \"b\", \"sandbox_id\": \"web-1\", "
        "\"endpoint\": \"e:1\", \"state\": \"online\", \"since_unix_ms\": 3, \"last_error\": \"\", "
        "\"last_error_unix_ms\": 0, \"certificate_not_after_unix_ms\": 4, \"clock_known\": false, "
        "\"clock_skew_ms\": 0, \"agent_version\": \"0.1.0\"}";
    struct agent_status status;
    (void)memset(&status, 'z', sizeof(status));
    OK(file_write_atomic(path, file, sizeof(file) - 1, 0600, &err));
    OK(status_read(path, &status, &err));
    cr_expect_eq(status.heartbeat_interval_ms, 0);
    cr_expect_eq(status.attempts_failed, 0);
    CLEANUP_FREE char *got = words(&status, true, 0);
    cr_expect(strstr(got, "web-1 is online"), "%s", got);
    cr_expect_null(strstr(got, "eartbeat"), "%s", got);
}

Test(agent_status, online_comes_with_its_heartbeat)
{
    struct agent_status status = online();
    status.heartbeat_interval_ms = 30000;
    status.heartbeat_sent_unix_ms = NOW - 12000;
    expect_words(&status, true, 0,
                 "Heartbeat every 30 s; the last one known of was sent 12 s ago.\n");
    status.heartbeat_interval_ms = 100;
    expect_words(&status, true, 0, "Heartbeat every 0.1 s;");
    CLEANUP_FREE char *gone = words(&status, false, 1);
    cr_expect_null(strstr(gone, "Heartbeat"), "%s", gone);
}

Test(agent_status, waiting_says_how_often_it_failed_and_when_it_tries_again)
{
    struct agent_status status = online();
    (void)snprintf(status.state, sizeof(status.state), "connecting");
    (void)snprintf(status.last_error, sizeof(status.last_error), "nothing is listening");
    status.next_attempt_unix_ms = NOW + 11001;
    expect_words(&status, true, 1, "nothing is listening\nThe next attempt is in 12 s.\n");
    status.attempts_failed = 1;
    status.failing_since_unix_ms = NOW - 12 * MINUTE;
    expect_words(
        &status, true, 1,
        "listening\n1 attempt has failed since 2026-11-18 10:54 UTC; the next one is in 12 "
        "s.\n");
    status.attempts_failed = 25;
    expect_words(&status, true, 1, "25 attempts have failed since");
    /* Under way, or due: the file is not written again for that. */
    status.next_attempt_unix_ms = NOW;
    expect_words(&status, true, 1, "; the next one is under way.\n");
    status.next_attempt_unix_ms = 0;
    expect_words(&status, true, 1, "; the next one is under way.\n");
    (void)snprintf(status.state, sizeof(status.state), "enrolling");
    expect_words(&status, true, 1, "25 attempts have failed since");
    (void)snprintf(status.state, sizeof(status.state), "no-runner");
    CLEANUP_FREE char *got = words(&status, true, 1);
    cr_expect_null(strstr(got, "attempt"), "%s", got);
}

Test(agent_status, trouble_comes_with_its_reason)
{
    struct agent_status status = online();
    (void)snprintf(status.state, sizeof(status.state), "connecting");
    status.since_unix_ms = NOW - 12 * MINUTE;
    expect_words(&status, true, 1,
                 "web-1 is not connected to orch.example.com:5000 for 12 min; the first");
    (void)snprintf(status.last_error, sizeof(status.last_error), "nothing is listening");
    expect_words(&status, true, 1,
                 "web-1 is not connected to orch.example.com:5000 for 12 min: nothing is "
                 "listening\n");
    (void)snprintf(status.state, sizeof(status.state), "no-runner");
    expect_words(&status, true, 1, "sandstorm-runner does not answer");
    (void)snprintf(status.state, sizeof(status.state), "enrolling");
    status.sandbox_id[0] = '\0';
    expect_words(&status, true, 1, "This machine is joining");
    expect_words(&status, true, 1, ": nothing is listening\n");
}

Test(agent_status, an_agent_that_does_not_run_is_not_online)
{
    struct agent_status status = online();
    expect_words(&status, false, 1,
                 "sandstorm-agent is not running, its last sign of life is 60 s "
                 "old (online)");
    expect_words(&status, false, 1, "systemctl start sandstorm-agent");
    (void)snprintf(status.state, sizeof(status.state), "stopped");
    status.since_unix_ms = NOW - 5 * MINUTE;
    expect_words(&status, false, 1, "it was stopped 5 min ago");
}

Test(agent_status, clocks_and_certificates_are_said_by_size)
{
    struct agent_status status = online();
    static const struct {
        int64_t skew_ms;
        const char *words;
    } rows[] = {
        { 0, "Clock: the same as the orchestrator's." },
        { -9, "Clock: the same as the orchestrator's." },
        { -1500, "Clock: 1.50 s behind the orchestrator." },
        { 32 * (int64_t)HOUR, "Clock: 32 h ahead of the orchestrator; set it (timedatectl)." },
        { INT64_MIN, "behind the orchestrator; set it" },
    };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        status.clock_skew_ms = rows[i].skew_ms;
        expect_words(&status, true, 0, rows[i].words);
    }
    status.clock_known = false;
    status.certificate_not_after_unix_ms = NOW - 3 * HOUR;
    CLEANUP_FREE char *got = words(&status, true, 0);
    cr_expect_null(strstr(got, "Clock"));
    cr_expect(strstr(got, "Certificate expired at 2026-11-18 08:06 UTC (3 h ago)"), "%s", got);
}

Test(agent_status, any_number_can_be_said)
{
    static const int64_t rows[] = { INT64_MIN, -1, 0, 1, INT64_MAX };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        struct agent_status status = online();
        status.since_unix_ms = status.written_unix_ms = rows[i];
        status.certificate_not_after_unix_ms = status.clock_skew_ms = rows[i];
        status.next_attempt_unix_ms = status.attempts_failed = rows[i];
        status.failing_since_unix_ms = rows[i];
        status.heartbeat_interval_ms = status.heartbeat_sent_unix_ms = rows[i];
        free(words(&status, true, 0));
        free(words(&status, false, 1));
        (void)snprintf(status.state, sizeof(status.state), "connecting");
        free(words(&status, true, 1));
    }
}

Test(agent_status, json_says_whether_it_runs)
{
    const struct agent_status status = online();
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    cr_assert_not_null(out);
    cr_expect_eq(status_print_json(&status, false, out), 1);
    cr_expect_eq(status_print_json(&status, true, out), 0);
    (void)fclose(out);
    cr_expect(strstr(text, "\"running\": false") && strstr(text, "\"running\": true"), "%s", text);
    cr_expect(strstr(text, "\"sandbox_id\": \"web-1\""), "%s", text);
    free(text);
}

Test(agent_status, it_runs_when_pid_boot_and_name_are_right)
{
    struct agent_status status = online();
    CLEANUP_FREE char *boot = NULL;
    size_t size;
    OK(file_read("/proc/sys/kernel/random/boot_id", 255, &boot, &size, &err));
    (void)snprintf(status.boot_id, sizeof(status.boot_id), "%.*s", (int)strcspn(boot, "\n"), boot);
    status.pid = getpid();
    cr_expect_not(status_running(&status), "another program");
    cr_assert_eq(prctl(PR_SET_NAME, "sandstorm-agent"), 0);
    cr_expect(status_running(&status));
    status.boot_id[0] = 'x';
    cr_expect_not(status_running(&status), "another boot");
    status.boot_id[0] = boot[0];
    static const int64_t rows[] = { 0, -1, INT64_MIN, INT64_MAX, 4194305 };
    for (size_t i = 0; i < ELEMENTS(rows); i++) {
        status.pid = rows[i];
        cr_expect_not(status_running(&status));
    }
}
