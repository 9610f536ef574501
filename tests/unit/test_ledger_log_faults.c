/* The ledger on a disk that is full, fails, lies or turns read-only, and killed in the middle of
 * everything: what was acknowledged is there, what is there is right, and when the disk is well
 * again so is the ledger. */
#include "ledger_faults.h"
#include "ledger_fixture.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#define BLOCK 9000u

static void set_up_faults(void)
{
    set_up();
    config.segment_bytes = LEDGER_SEGMENT_MIN;
    cr_assert_eq(sem_init(&faults.gate, 0, 0), 0);
    cr_assert_eq(sem_init(&faults.entered, 0, 0), 0);
}

static void tear_down_faults(void)
{
    atomic_store(&faults.unlink_error, 0);
    tear_down();
}

/* cppcheck-suppress unknownMacro */
TestSuite(ledger_faults, .init = set_up_faults, .fini = tear_down_faults, .timeout = 240);

static void block(unsigned command, unsigned nth)
{
    append(command, (uint64_t)nth * BLOCK, (uint64_t)(nth + 1) * BLOCK);
}

static void block_fails(unsigned command, unsigned nth, const char *words)
{
    uint64_t bytes = ledger_log_bytes(ledger);
    cr_assert_eq(try_append(command, (uint64_t)nth * BLOCK, (uint64_t)(nth + 1) * BLOCK), -1);
    cr_assert_eq(err.code, ERR_SYSTEM, "%s", err.text);
    cr_assert(strstr(err.text, words) && strstr(err.text, directory), "%s", err.text);
    cr_assert_eq(ledger_log_bytes(ledger), bytes);
}

static off_t size_of(uint32_t number)
{
    struct stat st;
    return stat(segment_path(number), &st) == 0 ? st.st_size : -1;
}

Test(ledger_faults, a_disk_that_is_full_fails_the_append_and_takes_it_later)
{
    open_ledger();
    block(1, 0);
    off_t size = size_of(1);
    atomic_store(&faults.write_error, ENOSPC);
    for (unsigned i = 0; i < 3; i++)
        block_fails(1, 1, "No space left");
    cr_expect_gt(ledger_log_busy_us(ledger), 0, "it is stuck");
    expect_whole(1, 0, BLOCK);
    cr_expect_eq(size_of(1), size);
    atomic_store(&faults.write_error, 0);
    block(1, 1);
    block(1, 2);
    expect_whole(1, 0, 3 * BLOCK);
    reopen_ledger();
    expect_whole(1, 0, 3 * BLOCK);
}

Test(ledger_faults, half_a_write_is_cut_off)
{
    open_ledger();
    for (unsigned i = 0; i < 9; i++) {
        off_t size = size_of(1);
        append(2, i * 10, (i + 1) * 10);
        off_t small = size_of(1);
        atomic_store(&faults.short_writes, true);
        atomic_store(&faults.write_error, EIO);
        block_fails(1, i, "Input/output error");
        atomic_store(&faults.write_error, 0);
        cr_expect(size_of(1) == small || small < size);
        block(1, i); /* in many small writes */
        atomic_store(&faults.short_writes, false);
    }
    expect_whole(1, 0, 9 * BLOCK);
    reopen_ledger();
    expect_whole(1, 0, 9 * BLOCK);
    expect_whole(2, 0, 90);
}

/* What comes behind the failed sync is written to another file: that one is never synced again. */
Test(ledger_faults, a_sync_that_fails_is_no_success_and_ends_its_segment)
{
    open_ledger();
    block(1, 0);
    off_t size = size_of(1);
    atomic_store(&faults.sync_error, EIO);
    block_fails(1, 1, "to the disk");
    atomic_store(&faults.sync_error, 0);
    block(1, 1);
    block(1, 2);
    cr_expect_eq(size_of(1), size);
    cr_expect_gt(size_of(2), 2 * BLOCK / 2);
    expect_whole(1, 0, 3 * BLOCK);
    reopen_ledger();
    expect_whole(1, 0, 3 * BLOCK);
}

Test(ledger_faults, a_first_sync_that_fails_leaves_no_file)
{
    open_ledger();
    atomic_store(&faults.sync_error, EIO);
    block_fails(1, 0, "Input/output error");
    atomic_store(&faults.sync_error, 0);
    block(1, 0);
    cr_expect_eq(count_files(".seg"), 1);
    expect_whole(1, 0, BLOCK);
}

/* What cannot be cut off could be taken for good by the next start, so nothing may come behind it.
 */
Test(ledger_faults, nothing_is_written_behind_what_cannot_be_cut_off)
{
    open_ledger();
    block(1, 0);
    atomic_store(&faults.sync_error, EIO);
    atomic_store(&faults.truncate_error, EIO);
    block_fails(1, 1, "to the disk");
    atomic_store(&faults.sync_error, 0);
    block_fails(1, 1, "cannot cut off");
    block_fails(1, 1, "cannot cut off");
    atomic_store(&faults.truncate_error, 0);
    block(1, 1);
    expect_whole(1, 0, 2 * BLOCK);
    reopen_ledger();
    expect_whole(1, 0, 2 * BLOCK);
}

/* As ext4 does it to itself after an error. */
Test(ledger_faults, a_filesystem_that_turns_read_only_fails_appends_until_it_is_mended)
{
    open_ledger();
    block(1, 0);
    atomic_store(&faults.write_error, EROFS);
    atomic_store(&faults.truncate_error, EROFS);
    atomic_store(&faults.unlink_error, EROFS);
    block_fails(1, 1, "Read-only");
    expect_whole(1, 0, BLOCK);
    atomic_store(&faults.write_error, 0);
    atomic_store(&faults.truncate_error, 0);
    atomic_store(&faults.unlink_error, 0);
    block(1, 1);
    expect_whole(1, 0, 2 * BLOCK);
}

static void submit_block(struct one_append *one, unsigned command, unsigned nth)
{
    prepare_append(one, command, (uint64_t)nth * BLOCK, (uint64_t)(nth + 1) * BLOCK);
    OK(ledger_log_append(ledger, &one->append, &err));
}

static void expect_result(struct one_append *one, bool good)
{
    wait_for(&one->done);
    cr_assert_eq(one->append.result, good ? 0 : -1, "%s", one->append.err.text);
    cr_assert(good || one->append.err.code == ERR_SYSTEM);
    free(one->runs);
}

/* The disk is well again when its turn comes, but what it follows on is not there. */
Test(ledger_faults, an_append_behind_one_that_failed_fails_too)
{
    struct one_append first, second, third, other;
    open_ledger();
    block(1, 0);
    atomic_store(&faults.gated, true);
    submit_block(&first, 1, 1);
    cr_assert_eq(sem_wait(&faults.entered), 0);
    submit_block(&second, 1, 2);
    submit_block(&other, 2, 0);
    submit_block(&third, 1, 3);
    atomic_store(&faults.fail_at, 1);
    cr_assert_eq(sem_post(&faults.gate), 0);
    expect_result(&other, true);
    expect_result(&third, false);
    expect_result(&first, false);
    expect_result(&second, false);
    expect_whole(1, 0, BLOCK);
    for (unsigned i = 1; i < 4; i++)
        block(1, i);
    expect_whole(1, 0, 4 * BLOCK);
    expect_whole(2, 0, BLOCK);
}

/* A batch that takes long, and another one right behind it. */
Test(ledger_faults, being_busy_is_not_being_stuck)
{
    struct one_append first, second;
    open_ledger();
    atomic_store(&faults.gated, true);
    submit_block(&first, 1, 0);
    cr_assert_eq(sem_wait(&faults.entered), 0);
    submit_block(&second, 1, 1);
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (ledger_log_busy_us(ledger) < 20000)
        cr_assert_lt(monotonic_us(), deadline);
    atomic_store(&faults.gated, true);
    uint64_t released = monotonic_us();
    cr_assert_eq(sem_post(&faults.gate), 0);
    cr_assert_eq(sem_wait(&faults.entered), 0);
    uint64_t busy = ledger_log_busy_us(ledger);
    cr_expect_leq(busy, monotonic_us() - released);
    cr_assert_eq(sem_post(&faults.gate), 0);
    expect_result(&first, true);
    expect_result(&second, true);
}

static struct one_append retried;

static void retry(struct ledger_append *failed)
{
    append_done(failed);
    cr_assert_eq(failed->result, -1);
    submit_block(&retried, 1, 1);
}

/* The first of two comes back and is appended again before the second comes back. */
Test(ledger_faults, an_append_may_be_repeated_at_once)
{
    struct one_append first, second;
    open_ledger();
    block(1, 0);
    atomic_store(&faults.gated, true);
    prepare_append(&first, 1, BLOCK, 2 * BLOCK);
    first.append.done = retry;
    OK(ledger_log_append(ledger, &first.append, &err));
    cr_assert_eq(sem_wait(&faults.entered), 0);
    submit_block(&second, 1, 2);
    atomic_store(&faults.fail_at, 1);
    cr_assert_eq(sem_post(&faults.gate), 0);
    expect_result(&second, false);
    wait_for(&first.done);
    free(first.runs);
    expect_result(&retried, true);
    block(1, 2);
    expect_whole(1, 0, 3 * BLOCK);
}

Test(ledger_faults, a_disk_that_is_well_again_is_noticed_without_an_append)
{
    open_ledger();
    block(1, 0);
    atomic_store(&faults.write_error, ENOSPC);
    block_fails(1, 1, "No space");
    cr_assert_gt(ledger_log_busy_us(ledger), 0);
    atomic_store(&faults.write_error, 0);
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (ledger_log_busy_us(ledger) > 0) {
        cr_assert_lt(monotonic_us(), deadline);
        OK(loop_turn(loop, 10000, &err));
    }
    reopen_ledger();
    block(1, 1);
    expect_whole(1, 0, 2 * BLOCK);
}

Test(ledger_faults, a_disk_that_cannot_read_is_damage_for_as_long_as_it_cannot)
{
    struct gaps gaps;
    open_ledger();
    block(1, 0);
    block(1, 1);
    atomic_store(&faults.read_error, EIO);
    cr_expect_eq(read_to_end(1, 0, &gaps), 2 * BLOCK);
    cr_expect_eq(gaps.damaged, 2 * BLOCK);
    atomic_store(&faults.read_error, ENOMEM);
    cr_expect_eq(read_once(1, 0, &gaps), UINT64_MAX);
    cr_expect(strstr(err.text, "Cannot allocate"), "%s", err.text);
    atomic_store(&faults.read_error, 0);
    expect_whole(1, 0, 2 * BLOCK);
    close_ledger();
    atomic_store(&faults.read_error, EIO);
    open_ledger();
    block(2, 0);
    atomic_store(&faults.read_error, 0);
    expect_whole(2, 0, BLOCK);
    reopen_ledger();
    expect_whole(2, 0, BLOCK);
}

Test(ledger_faults, freeing_ends_although_the_disk_is_full)
{
    struct one_append first, second;
    open_ledger();
    block(1, 0);
    atomic_store(&faults.write_error, ENOSPC);
    submit_block(&first, 1, 1);
    submit_block(&second, 1, 2);
    const struct command_id id = id_of(1);
    close_ledger();
    cr_assert(first.done && second.done);
    expect_result(&first, false);
    expect_result(&second, false);
    atomic_store(&faults.write_error, 0);
    open_ledger();
    expect_whole(1, 0, BLOCK);
    ledger_log_forget(ledger, &id);
    atomic_store(&faults.write_error, ENOSPC);
    close_ledger();
    atomic_store(&faults.write_error, 0);
}

/* A real one. */
Test(ledger_faults, a_small_filesystem_that_fills_up)
{
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        cr_assert_neq(geteuid(), 0, "root can make a mount namespace");
        return; /* nobody else can; the faults above are the same by injection */
    }
    cr_assert_eq(mount("tmpfs", directory, "tmpfs", MS_NOSUID | MS_NODEV, "size=512k,mode=0700"),
                 0);
    open_ledger();
    unsigned count = 0;
    append(2, 0, 100);
    while (try_append(1, (uint64_t)count * BLOCK, (uint64_t)(count + 1) * BLOCK) == 0)
        cr_assert_lt(++count, 100);
    cr_assert_eq(err.sys_errno, ENOSPC, "%s", err.text);
    cr_assert_gt(count, 40);
    expect_whole(1, 0, (uint64_t)count * BLOCK);
    close_ledger();
    open_ledger();
    expect_whole(1, 0, (uint64_t)count * BLOCK);
    const struct command_id id = id_of(1);
    ledger_log_trim(ledger, &id, (uint64_t)count * BLOCK - 5);
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    unsigned more = count;
    while (more < count + 20) {
        cr_assert_lt(monotonic_us(), deadline, "%s", err.text);
        more += try_append(1, (uint64_t)more * BLOCK, (uint64_t)(more + 1) * BLOCK) == 0;
    }
    expect_whole(1, (uint64_t)count * BLOCK - 5, (uint64_t)more * BLOCK);
    expect_whole(2, 0, 100);
    close_ledger();
    cr_assert_eq(umount(directory), 0);
}

/* All that changes the disk in one go: segments are made, filled, dropped and emptied. `tell` hears
 * of what is durable; a failed append is repeated. */

#define STORY_FLOOD  1u
#define STORY_QUIET  2u
#define STORY_DEAD   3u
#define STORY_BLOCKS 24u
#define STORY_FORGOT 99u /* what is told when STORY_DEAD is forgotten, durably */

struct told {
    unsigned command;
    uint64_t end;
};

static void (*tell)(unsigned command, uint64_t end);

static void story_append(unsigned command, uint64_t offset, uint64_t end)
{
    uint64_t deadline = monotonic_us() + DEADLINE_US;
    while (try_append(command, offset, end) < 0)
        cr_assert_lt(monotonic_us(), deadline, "%s", err.text);
    tell(command, end);
}

static void story(void)
{
    const struct command_id dead = id_of(STORY_DEAD), flood = id_of(STORY_FLOOD);
    open_ledger();
    for (unsigned i = 0; i < STORY_BLOCKS; i++) {
        story_append(STORY_FLOOD, (uint64_t)i * BLOCK, (uint64_t)(i + 1) * BLOCK);
        story_append(STORY_QUIET, i * 100, (i + 1) * 100);
        if (i < STORY_BLOCKS / 2)
            story_append(STORY_DEAD, (uint64_t)i * BLOCK, (uint64_t)(i + 1) * BLOCK);
        if (i == STORY_BLOCKS / 2)
            ledger_log_forget(ledger, &dead);
        if (i == STORY_BLOCKS / 2 + 1)
            tell(STORY_FORGOT, 0);
        if (i == STORY_BLOCKS - 6)
            ledger_log_trim(ledger, &flood, (uint64_t)i * BLOCK);
    }
    let_it_turn();
    close_ledger();
}

static struct told last_told[4];

static void note_told(unsigned command, uint64_t end)
{
    if (command == STORY_FORGOT)
        last_told[0].command = 1;
    else
        last_told[command].end = end;
}

static void expect_story(const struct told *told)
{
    const struct command_id dead = id_of(STORY_DEAD);
    struct gaps gaps;
    uint64_t first = 0, end = 0;
    for (unsigned i = STORY_FLOOD; i <= STORY_DEAD; i++) {
        const struct command_id id = id_of(i);
        bool kept = ledger_log_range(ledger, &id, &first, &end);
        if (i == STORY_DEAD && !kept)
            continue; /* on its way to be forgotten */
        cr_assert(kept || told[i].end == 0, "command %u was acknowledged up to %lu", i,
                  told[i].end);
        if (!kept)
            continue;
        cr_assert_geq(end, told[i].end, "command %u", i);
        cr_assert_leq(end, told[i].end + (i == STORY_QUIET ? 100 : BLOCK), "command %u", i);
        cr_assert_eq(read_to_end(i, first, &gaps), end);
        cr_assert_eq(gaps.damaged, 0);
        cr_assert(gaps.trimmed == 0 || i == STORY_FLOOD);
        cr_assert(i != STORY_QUIET || first == 0);
    }
    if (told[0].command)
        cr_assert_not(ledger_log_range(ledger, &dead, &first, &end), "it was forgotten");
    else if (told[STORY_FLOOD].end <= STORY_BLOCKS / 2 * BLOCK && told[STORY_DEAD].end > 0)
        cr_assert(ledger_log_range(ledger, &dead, &first, &end), "nobody forgot it yet");
}

Test(ledger_faults, any_single_call_may_fail_and_nothing_is_lost)
{
    tell = note_told;
    story();
    unsigned steps = atomic_load(&faults.steps);
    cr_assert_gt(steps, 100);
    for (unsigned n = 1; n < steps; n++) {
        char command[128];
        (void)snprintf(command, sizeof(command), "rm -rf %s/ledger", directory);
        cr_assert_eq(system(command), 0);
        memset(last_told, 0, sizeof(last_told));
        /* Opening may fail as a whole: it is tried once more, as an operator would. */
        atomic_store(&faults.fail_at, n);
        struct ledger_log *tried = NULL;
        if (ledger_log_open(&config, &tried, &err) == 0)
            ledger_log_free(tried);
        story();
        atomic_store(&faults.fail_at, 0);
        open_ledger();
        expect_story(last_told);
        close_ledger();
    }
}

/* Kills. */

static int told_fd;

static void send_told(unsigned command, uint64_t end)
{
    const struct told told = { command, end };
    if (write(told_fd, &told, sizeof(told)) != sizeof(told))
        _exit(3);
}

static _Noreturn void tell_until_killed(int fd)
{
    struct err own = { 0 };
    told_fd = fd;
    tell = send_told;
    if (loop_new(&config.loop, &own) < 0)
        _exit(4);
    loop = config.loop;
    story();
    _exit(0);
}

/* True when it was killed; what it told before. */
static bool run_story(unsigned kill_at, const char *failpoint, unsigned after, struct told *ret)
{
    int fds[2];
    cr_assert_eq(pipe2(fds, O_CLOEXEC), 0);
    memset(ret, 0, 4 * sizeof(*ret));
    pid_t child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        atomic_store(&faults.kill_at, kill_at);
        if (failpoint)
            (void)setenv("SANDSTORM_FAILPOINT", failpoint, 1);
        tell_until_killed(fds[1]);
    }
    (void)close(fds[1]);
    struct told told;
    unsigned count = 0;
    while (read(fds[0], &told, sizeof(told)) == (ssize_t)sizeof(told)) {
        if (told.command == STORY_FORGOT)
            ret[0].command = 1;
        else
            ret[told.command].end = told.end;
        if (after > 0 && ++count == after)
            (void)kill(child, SIGKILL);
    }
    (void)close(fds[0]);
    int status = 0;
    cr_assert_eq(waitpid(child, &status, 0), child);
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    cr_assert(killed || (WIFEXITED(status) && WEXITSTATUS(status) == 0), "%x", (unsigned)status);
    return killed;
}

static void start_afresh(void)
{
    char command[128];
    (void)snprintf(command, sizeof(command), "rm -rf %s/ledger", directory);
    cr_assert_eq(system(command), 0);
}

static void expect_story_after(const struct told *told)
{
    for (unsigned round = 0; round < 2; round++) {
        open_ledger();
        expect_story(told);
        cr_assert_eq(count_files(".tmp"), 0);
        close_ledger();
    }
}

Test(ledger_faults, a_kill_before_any_change_of_the_disk_loses_nothing_that_was_acknowledged)
{
    struct told told[4];
    unsigned n = 1;
    for (; run_story(n, NULL, 0, told); n++) {
        expect_story_after(told);
        start_afresh();
    }
    cr_assert_gt(n, 100, "%u", n);
}

Test(ledger_faults, a_kill_at_any_time_loses_nothing_that_was_acknowledged)
{
    struct told told[4];
    for (unsigned after = 1; after < 3 * STORY_BLOCKS - STORY_BLOCKS / 2; after++) {
        (void)run_story(0, NULL, after, told);
        expect_story_after(told);
        start_afresh();
    }
}

#ifdef SANDSTORM_FAILPOINTS
Test(ledger_faults, a_kill_at_every_failpoint_loses_nothing_that_was_acknowledged)
{
    static const char *const points[] = { "ledger.segment-made", "ledger.writing",
                                          "ledger.written",      "ledger.synced",
                                          "ledger.removed",      "ledger.emptying",
                                          "ledger.emptied",      "ledger.renamed" };
    for (unsigned i = 0; i < ELEMENTS(points); i++) {
        struct told told[4];
        cr_assert(run_story(0, points[i], 0, told), "nothing came to %s", points[i]);
        expect_story_after(told);
        start_afresh();
    }
}
#endif
