/* The runner, killed, upgraded and cut off: what it knows afterwards is the truth, nothing runs
 * twice, and of the output that it held nothing is missing or made up. */
#include "tests/integration/raw_runner.h"

#include <sys/mount.h>

#define RESTARTED SANDSTORM__V1__LOST_REASON__LOST_REASON_RUNNER_RESTARTED
#define RELEASED  SANDSTORM__V1__LOST_REASON__LOST_REASON_RELEASED
#define EXITED    SANDSTORM__V1__OUTCOME__RESULT_EXITED
#define LOST      SANDSTORM__V1__OUTCOME__RESULT_LOST
#define BLOCK     SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_BLOCK
#define DROP      SANDSTORM__V1__OUTPUT_POLICY__OUTPUT_POLICY_DROP_OLDEST

static void start_runner(void)
{
    raw_setup();
    raw_new("");
    raw_start();
}

/* AddressSanitizer keeps what was freed, 256 MiB of it. */
#ifdef SANDSTORM_SANITIZED
#define GROWTH_KB (32768u + 320u * 1024)
#else
#define GROWTH_KB 32768u
#endif

TestSuite(runner_durable, .init = start_runner, .fini = raw_teardown);
TestSuite(runner_state, .init = raw_setup, .fini = raw_teardown);

/* Notes that it ran, prints lines [0, `lines`), and says that it has. */
static void script(struct raw_command *command, unsigned number, unsigned lines, const char *more)
{
    raw_begin(command, number);
    (void)snprintf(command->script, sizeof(command->script),
                   "echo ran >> %s/count; %s; touch %s/printed; %s", raw.dir, raw_lines(0, lines),
                   raw.dir, more);
}

static unsigned times_run(void)
{
    return fixture_count_lines(raw_file("count"));
}

/* After a restart. */

Test(runner_durable, an_ended_command_is_offered_again_with_every_byte_and_its_status)
{
    struct raw_command command = { 0 };
    script(&command, 1, 50000, "exit 7");
    raw_welcome(&command, 1);
    raw_order_start(&command, 1000, 0);
    RAW_UNTIL(&command, command.settled > 0);
    cr_assert_eq(command.next, 1000u);
    raw_kill();
    raw_welcome(&command, 1);
    cr_assert(command.listed && command.listed_ended);
    RAW_UNTIL(&command, command.settled == 2);
    cr_assert_eq(command.settled_end, 50000u * RAW_LINE);
    raw_attach(&command, 1000, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.next, 50000u * RAW_LINE);
    cr_assert_eq(command.received, command.next);
    cr_assert(command.result == EXITED && command.code == 7);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_durable, what_was_acknowledged_is_not_offered_again)
{
    struct raw_command command = { 0 };
    script(&command, 1, 20000, "exit 0");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    raw_credit(&command, 100000, NO_LIMIT);
    raw_attach(&command, 99999, NO_LIMIT);
    command.ended = false;
    raw_drain(&command);
    raw_kill();
    raw_welcome(&command, 1);
    command = (struct raw_command){ .id = command.id };
    raw_attach(&command, 0, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.trimmed, 100000u);
    cr_assert_eq(command.received, 60000u);
    cr_assert_eq(command.dropped + command.damaged, 0u);
}

Test(runner_durable, a_running_command_is_lost_with_the_output_that_was_kept)
{
    struct raw_command command = { .policy = BLOCK };
    script(&command, 1, 400000, "sleep 600");
    raw_welcome(&command, 1);
    raw_order_start(&command, 100000, 0);
    raw_wait_path(raw.dir, raw_file("printed"));
    RAW_UNTIL(&command, command.next == 100000);
    raw_kill();
    raw_welcome(&command, 1);
    cr_assert(command.listed && command.listed_ended);
    raw_attach(&command, 100000, NO_LIMIT);
    raw_drain(&command);
    cr_assert(command.result == LOST && command.lost == RESTARTED, "%s", command.detail);
    fixture_assert_contains(command.detail, "the runner was restarted while the command ran");
    /* At most what was in memory and on its way there is missing, and that is said. */
    cr_assert_geq(command.received, 400000u * RAW_LINE - (1u << 20) - 65536 - 65536);
    cr_assert_eq(command.received + command.damaged, command.next);
    cr_assert_eq(command.dropped + command.trimmed, 0u);
    raw_order_start(&command, NO_LIMIT, 0);
    command.ended = false;
    command.next = 0;
    raw_drain(&command);
    cr_assert_eq(command.lost, RESTARTED);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_durable, an_id_stays_taken_by_its_command)
{
    struct raw_command command = { 0 };
    script(&command, 1, 1, "exit 3");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    raw_kill();
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 1);
    RAW_UNTIL(&command, command.refused > 0);
    cr_assert_eq(command.refusal, SANDSTORM__V1__REFUSAL_REASON__REFUSAL_REASON_CONFLICT);
    command.ended = false;
    command.next = 0;
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    cr_assert(command.result == EXITED && command.code == 3);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_durable, a_released_command_is_never_run_again)
{
    struct raw_command command = { 0 };
    script(&command, 1, 1, "exit 3");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    raw_release(&command);
    raw_attach(&command, 0, 0);
    RAW_UNTIL(&command, command.refused > 0);
    raw_kill();
    raw_welcome(&command, 1);
    cr_assert_eq(raw.listed, 0u);
    command.ended = false;
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    cr_assert_eq(command.lost, RELEASED);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_durable, another_life_has_another_instance)
{
    char before[sizeof(raw.instance)];
    raw_welcome(NULL, 0);
    (void)memcpy(before, raw.instance, sizeof(before));
    raw_kill();
    raw_welcome(NULL, 0);
    cr_assert_str_neq(raw.instance, before);
}

Test(runner_durable, an_orderly_restart_keeps_how_commands_ended)
{
    struct raw_command command = { 0 };
    script(&command, 1, 1000, "sleep 600");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    RAW_UNTIL(&command, command.next == 1000 * RAW_LINE);
    raw_disconnect();
    MUST(service_stop(raw.runner, err));
    raw_start();
    raw_welcome(&command, 1);
    cr_assert(command.listed && command.listed_ended);
    raw_attach(&command, 0, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.result, SANDSTORM__V1__OUTCOME__RESULT_CANCELLED);
    cr_assert_eq(command.received, 2000 * RAW_LINE);
}

/* A week is nothing: no clock of the day decides anything. */
Test(runner_durable, a_redelivery_after_the_clock_jumped_by_eight_days_attaches)
{
    struct raw_command command = { 0 };
    char variable[200];
    script(&command, 1, 1, "exit 3");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    MUST(service_kill(raw.runner, err));
    const int64_t skew = 8 * 86400;
    MUST(file_write_atomic(raw_file("skew"), &skew, sizeof(skew), 0600, err));
    (void)snprintf(variable, sizeof(variable), "SANDSTORM_TEST_CLOCK=%s", raw_file("skew"));
    MUST(service_set_env(raw.runner, variable, err));
    MUST(service_set_env(raw.runner, "LD_PRELOAD=" SKEW_LIBRARY, err));
    raw_start();
    raw_welcome(&command, 1);
    command.ended = false;
    command.next = 0;
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    cr_assert(command.result == EXITED && command.code == 3);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_durable, after_a_boot_nothing_of_before_is_known)
{
    struct raw_command command = { 0 };
    script(&command, 1, 1, "exit 3");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    MUST(service_kill(raw.runner, err));
    CLEANUP_FD int fd = open(raw_file("state/boot-id"), O_WRONLY | O_CLOEXEC);
    cr_assert_eq(pwrite(fd, "00000000", 8, 0), 8);
    raw_start();
    raw_welcome(&command, 1);
    cr_assert_eq(raw.listed, 0u);
    cr_assert_eq(raw_count_log("state of an earlier boot removed"), 1u);
}

/* Without a link. */

Test(runner_durable, without_a_link_a_command_writes_up_to_its_quota_and_waits)
{
    struct raw_command command = { .policy = BLOCK, .spool_bytes = 8u << 20 };
    script(&command, 1, 2000000, "exit 9");
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    RAW_UNTIL(&command, command.started > 0);
    raw_disconnect();
    raw_wait_spilled(&command, (7u << 20) - 65536);
    raw_welcome(&command, 1);
    cr_assert(command.listed && !command.listed_ended, "it did not wait");
    raw_attach(&command, command.next, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.received, 2000000u * RAW_LINE);
    cr_assert(command.result == EXITED && command.code == 9);
    cr_assert_eq(times_run(), 1u);
}

Test(runner_durable, without_a_link_the_oldest_output_goes_and_the_gap_is_exact)
{
    struct raw_command command = { .policy = DROP, .spool_bytes = 4u << 20 };
    script(&command, 1, 2000000, "exit 9");
    raw_welcome(&command, 1);
    raw_order_start(&command, 0, 0);
    RAW_UNTIL(&command, command.started > 0);
    raw_disconnect();
    MUST(service_wait_log(raw.runner, "command ended", PROC_DEADLINE_US, err));
    raw_welcome(&command, 1);
    raw_attach(&command, 0, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.next, 2000000u * RAW_LINE);
    cr_assert_eq(command.dropped + command.received, command.next);
    cr_assert_eq(command.damaged + command.trimmed, 0u);
    cr_assert_leq(command.received, 4u << 20);
    cr_assert_geq(command.received, (4u << 20) - (1u << 18));
}

/* Ten GiB in the long form. */
Test(runner_durable, much_output_that_nobody_takes_does_not_make_the_runner_grow)
{
    struct raw_command command = { .policy = DROP };
    const char *gigabytes = getenv("SANDSTORM_TEST_GIB");
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script), "head -c %uM /dev/zero",
                   gigabytes ? (unsigned)atoi(gigabytes) * 1024 : 256);
    raw_welcome(&command, 1);
    unsigned long before = raw_status_kb("VmHWM:");
    raw_order_start(&command, 0, 0);
    RAW_UNTIL(&command, command.started > 0);
    raw_disconnect();
    MUST(service_wait_log(raw.runner, "command ended", 10 * PROC_DEADLINE_US, err));
    struct stat st;
    char path[160];
    (void)snprintf(path, sizeof(path), "%s/%s", raw.state, command.id.text);
    cr_assert_eq(stat(path, &st), 0);
    cr_expect_leq((uint64_t)st.st_blocks * 512, (64u << 20) + (2u << 20), "%lu bytes",
                  (uint64_t)st.st_blocks * 512);
    cr_expect_lt(raw_status_kb("VmHWM:"), before + GROWTH_KB, "%lu kB before", before);
}

Test(runner_durable, much_output_that_is_taken_does_not_make_it_grow_either)
{
    enum { LINES = 6000000 };
    struct raw_command command = { .policy = BLOCK };
    script(&command, 1, LINES, "exit 0");
    raw_welcome(&command, 1);
    unsigned long before = raw_status_kb("VmHWM:");
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    cr_assert_eq(command.received, (uint64_t)LINES * RAW_LINE);
    cr_expect_lt(raw_status_kb("VmHWM:"), before + GROWTH_KB, "%lu kB before", before);
}

/* A full disk. */

static void mount_small(void)
{
    raw_setup();
    cr_assert_eq(mkdir(raw.state, 0700), 0);
    if (mount("tmpfs", raw.state, "tmpfs", 0, "size=16m,mode=0700") < 0)
        cr_skip_test("a file system cannot be mounted here");
    raw_new("");
    raw_start();
}

static void unmount_small(void)
{
    close_fd(&raw.fd);
    (void)!service_kill(raw.runner, &(struct err){ 0 });
    (void)umount2(raw.state, MNT_DETACH);
    raw_teardown();
}

TestSuite(runner_disk, .init = mount_small, .fini = unmount_small);

static void fill_disk(void)
{
    static uint8_t bytes[65536];
    CLEANUP_FD int fd = open(raw_file("state/ballast"), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    while (write(fd, bytes, sizeof(bytes)) > 0)
        continue;
    cr_assert_eq(errno, ENOSPC);
}

Test(runner_disk, a_full_disk_makes_a_command_wait_until_there_is_space)
{
    struct raw_command command = { .policy = BLOCK };
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script), "read x; %s; touch %s/printed; exit 9",
                   raw_lines(0, 500000), raw.dir);
    command.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    raw_welcome(&command, 1);
    raw_order_start(&command, 0, 0);
    RAW_UNTIL(&command, command.started > 0);
    fill_disk();
    raw_input(&command, 0, "\n", 1, true);
    MUST(service_wait_log(raw.runner, "cannot keep state", PROC_DEADLINE_US, err));
    cr_assert_eq(access(raw_file("printed"), F_OK), -1);
    cr_assert_eq(unlink(raw_file("state/ballast")), 0);
    raw_wait_path(raw.dir, raw_file("printed"));
    MUST(service_wait_log(raw.runner, "state can be kept again", PROC_DEADLINE_US, err));
    cr_assert_eq(raw_count_log("cannot keep state"), 1u, "said more than once");
    raw_attach(&command, 0, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.received, 500000u * RAW_LINE);
    cr_assert(command.result == EXITED && command.code == 9);
}

Test(runner_disk, on_a_full_disk_a_command_that_may_drop_goes_on)
{
    struct raw_command command = { .policy = DROP };
    raw_begin(&command, 1);
    (void)snprintf(command.script, sizeof(command.script), "read x; %s; exit 9",
                   raw_lines(0, 500000));
    command.stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    raw_welcome(&command, 1);
    raw_order_start(&command, 0, 0);
    RAW_UNTIL(&command, command.started > 0);
    fill_disk();
    raw_input(&command, 0, "\n", 1, true);
    MUST(service_wait_log(raw.runner, "command ended", PROC_DEADLINE_US, err));
    raw_credit(&command, 0, NO_LIMIT);
    raw_drain(&command);
    cr_assert_eq(command.dropped + command.received, 500000u * RAW_LINE);
    cr_assert_gt(command.received, 500000u);
    cr_assert(command.result == EXITED && command.code == 9);
}

Test(runner_disk, on_a_full_disk_nothing_is_started_that_could_run_twice)
{
    struct raw_command command = { 0 };
    script(&command, 1, 1, "exit 0");
    raw_welcome(&command, 1);
    fill_disk();
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    cr_assert_eq(command.result, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
    cr_assert_eq(times_run(), 0u);
}

/* What commands wrote before it became read-only is still theirs. */
Test(runner_disk, a_disk_that_becomes_read_only_starts_nothing_and_ends_well)
{
    struct raw_command commands[2] = { { .next = 0 } };
    raw_begin(&commands[0], 1);
    (void)snprintf(commands[0].script, sizeof(commands[0].script), "%s; read x; exit 9",
                   raw_lines(0, 1000));
    commands[0].stdin_mode = SANDSTORM__V1__STDIN_MODE__STDIN_MODE_STREAM;
    script(&commands[1], 2, 1, "exit 0");
    raw_welcome(commands, 2);
    raw_order_start(&commands[0], NO_LIMIT, 0);
    while (commands[0].next < 1000 * RAW_LINE)
        (void)raw_hear(commands, 2, NULL);
    /* Files that are open for writing keep a file system from it; a bind mount is not asked. */
    if (mount(raw.state, raw.state, NULL, MS_BIND, NULL) < 0 ||
        mount(NULL, raw.state, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL) < 0)
        cr_skip_test("a file system cannot be mounted read-only here");
    raw_order_start(&commands[1], NO_LIMIT, 0);
    raw_input(&commands[0], 0, "\n", 1, true);
    while (!commands[0].ended || !commands[1].ended)
        (void)raw_hear(commands, 2, NULL);
    cr_assert(commands[0].result == EXITED && commands[0].code == 9);
    cr_assert_eq(umount2(raw.state, MNT_DETACH), 0);
}

/* The directory. */

static void expect_refused(const char *why)
{
    int status;
    raw_new("");
    MUST(service_start(raw.runner, err));
    MUST(service_wait_ended(raw.runner, &status, err));
    cr_assert_neq(status, 0);
    cr_assert_geq(raw_count_log(why), 1u, "it says something else");
}

Test(runner_state, a_directory_that_somebody_prepared_is_refused_in_words)
{
    cr_assert_eq(symlink("/tmp", raw.state), 0);
    expect_refused("must be a directory itself");
}

Test(runner_state, a_parent_that_everybody_may_write_to_is_refused_in_words)
{
    cr_assert_eq(chmod(raw.dir, 0777), 0);
    expect_refused("others may write to the directory above");
}

Test(runner_state, a_directory_that_cannot_be_made_is_refused_in_words)
{
    (void)snprintf(raw.state, sizeof(raw.state), "/proc/sandstorm/runner");
    expect_refused("cannot make the directory /proc/sandstorm");
}

Test(runner_state, a_second_runner_with_the_same_directory_is_refused_in_words)
{
    raw_new("");
    raw_start();
    struct service *first = raw.runner;
    (void)snprintf(raw.path, sizeof(raw.path), "%s/other-sock", raw.dir);
    char socket[160], state[160];
    int status;
    (void)snprintf(socket, sizeof(socket), "SANDSTORM_RUNNER_SOCKET=%s", raw.path);
    (void)snprintf(state, sizeof(state), "SANDSTORM_RUNNER_STATE_DIR=%s", raw.state);
    const struct service_config config = {
        .name = "second",
        .dir = raw.dir,
        .argv = (const char *[]){ cluster_program("sandstorm-runner"), NULL },
        .env = (const char *[]){ socket, state, NULL },
    };
    MUST(service_new(&config, &raw.runner, err));
    MUST(service_start(raw.runner, err));
    MUST(service_wait_ended(raw.runner, &status, err));
    cr_expect_neq(status, 0);
    cr_expect_eq(raw_count_log("another runner uses"), 1u);
    service_free(raw.runner);
    raw.runner = first;
}

Test(runner_state, a_name_that_is_taken_starts_nothing)
{
    struct raw_command command = { 0 };
    char path[160];
    raw_new("");
    raw_start();
    script(&command, 1, 1, "exit 0");
    (void)snprintf(path, sizeof(path), "%s/%s", raw.state, command.id.text);
    cr_assert_eq(mkfifo(path, 0600), 0);
    raw_welcome(&command, 1);
    raw_order_start(&command, NO_LIMIT, 0);
    raw_drain(&command);
    cr_assert_eq(command.result, SANDSTORM__V1__OUTCOME__RESULT_START_FAILED);
    fixture_assert_contains(command.detail, "not the runner's");
    cr_assert_eq(times_run(), 0u);
}
