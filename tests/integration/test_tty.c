/* `sandstorm shell` as a person has it: keys in, screen out, in a window of tmux. */
#include "common/clock.h"
#include "common/file.h"
#include "tests/harness/screen.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <time.h>

#define ROWS    24u
#define COLUMNS 80u
/* What the sandbox's shell says when it waits. */
#define PROMPT "box> "

/* No test may find the words that it typed itself: what it waits for is computed by the shell. */
#define ANSWER_42 "$((40+2))"

TestSuite(tty, .init = fixture_start, .fini = fixture_stop);

/* A home for the shell in the sandbox, whose prompt is known. */
static void make_home(char out[CLUSTER_PATH_MAX])
{
    char profile[CLUSTER_PATH_MAX + 32];
    (void)snprintf(out, CLUSTER_PATH_MAX, "%s", fixture_path("home"));
    (void)snprintf(profile, sizeof(profile), "%s/.bash_profile", out);
    cr_assert_eq(mkdir(out, 0700), 0);
    FILE *file = fopen(profile, "we");
    cr_assert_not_null(file);
    (void)fprintf(file, "PS1='%s'; unset PROMPT_COMMAND HISTFILE\n", PROMPT);
    cr_assert_eq(fclose(file), 0);
}

/* Notes the settings of the local terminal, and opens the shell. The client's pid is in a file. */
static struct screen *open_shell(void)
{
    char home[CLUSTER_PATH_MAX], line[4 * CLUSTER_PATH_MAX];
    make_home(home);
    struct screen *screen = screen_open(ROWS, COLUMNS);
    (void)snprintf(line, sizeof(line), "cd %s; stty -a > before", home);
    screen_enter(screen, line);
    (void)snprintf(line, sizeof(line),
                   "clear; sh -c 'echo $$ > pid; exec sandstorm shell -E HOME=%s -C %s %s'", home,
                   home, BOX);
    screen_enter(screen, line);
    screen_wait_prompt(screen, PROMPT);
    return screen;
}

/* Back in the local shell: the terminal is what it was before. */
static void assert_restored(struct screen *screen)
{
    screen_enter(screen, "stty -a | cmp - before && echo restored " ANSWER_42);
    screen_wait(screen, "restored 42");
}

static void assert_file(const char *path, const char *content)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    MUST(file_read(path, 4096, &text, &size, err));
    cr_assert_str_eq(text, content);
}

static pid_t read_pid(const char *name)
{
    CLEANUP_FREE char *text = NULL;
    size_t size;
    char path[CLUSTER_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/%s", fixture_path("home"), name);
    MUST(file_read(path, 64, &text, &size, err));
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    cr_assert_gt(pid, 1);
    return pid;
}

/* Until the process is in that state of proc(5), and in its terminal's foreground or not. */
static void wait_process(pid_t pid, char state, bool foreground)
{
    char path[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    for (uint64_t deadline = monotonic_us() + PROC_DEADLINE_US;;) {
        CLEANUP_FREE char *text = NULL;
        size_t size;
        char now = 0;
        int group = 0, front = 0;
        MUST(file_read(path, 4096, &text, &size, err));
        cr_assert_eq(sscanf(strrchr(text, ')'), ") %c %*d %d %*d %*d %d", &now, &group, &front), 3);
        if (now == state && (group == front) == foreground)
            return;
        cr_assert_lt(monotonic_us(), deadline, "process %d stays %c, not %c", pid, now, state);
        (void)nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
}

Test(tty, a_shell_is_one_and_leaves_the_terminal_as_it_was)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "tty > /dev/null && echo on a terminal " ANSWER_42);
    screen_wait(screen, "on a terminal 42");
    screen_enter(screen, "exit 7");
    screen_wait_prompt(screen, SCREEN_PROMPT);
    screen_enter(screen, "echo status $?" ANSWER_42);
    screen_wait(screen, "status 742");
    assert_restored(screen);
}

Test(tty, control_d_leaves_the_shell)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_press(screen, "C-d");
    screen_wait_prompt(screen, SCREEN_PROMPT);
    assert_restored(screen);
}

Test(tty, jobs_are_stopped_continued_and_interrupted)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "sh -c 'echo $$ > job; echo running " ANSWER_42 "; exec sleep 100'");
    screen_wait(screen, "running 42");
    pid_t job = read_pid("job");
    wait_process(job, 'S', true);
    screen_press(screen, "C-z");
    screen_wait(screen, "Stopped");
    wait_process(job, 'T', false);
    screen_enter(screen, "clear; jobs");
    screen_wait(screen, "[1]+  Stopped");
    screen_enter(screen, "fg");
    wait_process(job, 'S', true);
    screen_press(screen, "C-c");
    screen_wait_prompt(screen, PROMPT);
    screen_enter(screen, "echo status $?" ANSWER_42);
    screen_wait(screen, "status 13042");
    screen_enter(screen, "sleep 100 &");
    screen_enter(screen, "jobs; kill %1; wait; echo ended " ANSWER_42);
    screen_wait(screen, "ended 42");
}

Test(tty, an_editor_edits)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "clear; vi -u NONE -N -n edited");
    screen_wait_lines(screen, "~", ROWS - 2);
    screen_type(screen, "ihello from the editor");
    screen_press(screen, "Enter");
    screen_type(screen, "and a second line");
    screen_press(screen, "Escape");
    screen_enter(screen, ":wq");
    screen_wait_prompt(screen, PROMPT);
    screen_enter(screen, "clear; echo status $?" ANSWER_42);
    screen_wait(screen, "status 042");
    char path[CLUSTER_PATH_MAX + 32];
    (void)snprintf(path, sizeof(path), "%s/edited", fixture_path("home"));
    assert_file(path, "hello from the editor\nand a second line\n");
    screen_enter(screen, "exit");
    screen_wait_prompt(screen, SCREEN_PROMPT);
    assert_restored(screen);
}

Test(tty, top_redraws_and_ends)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "clear; top -d 0.2");
    screen_wait(screen, "load average");
    for (unsigned i = 0; i < 3; i++) {
        CLEANUP_FREE char *before = screen_text(screen);
        screen_wait_change(screen, before);
    }
    screen_type(screen, "q");
    screen_wait_prompt(screen, PROMPT);
    screen_enter(screen, "clear; echo status $?" ANSWER_42);
    screen_wait(screen, "status 042");
}

Test(tty, a_window_that_changes_changes_what_runs_in_it)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_ask(screen, "stty size", PROMPT, "\n24 80\n");
    screen_resize(screen, 30, 100);
    screen_ask(screen, "stty size", PROMPT, "\n30 100\n");
    screen_enter(screen, "clear; vi -u NONE -N -n edited");
    screen_wait_lines(screen, "~", 30 - 2);
    screen_resize(screen, 15, 60);
    screen_wait_lines(screen, "~", 15 - 2);
    screen_resize(screen, 40, 120);
    screen_wait_lines(screen, "~", 40 - 2);
    screen_enter(screen, ":q");
    screen_wait_prompt(screen, PROMPT);
    screen_enter(screen, "clear; echo status $?" ANSWER_42);
    screen_wait(screen, "status 042");
}

/* The first TERM is for the command, which may do with it what it likes, as bash does nothing.
 * SIGKILL cannot be seen coming: after it, only stty(1) or reset(1) helps. */
static void kill_client(int number, const char *status)
{
    char expected[32];
    CLEANUP_SCREEN struct screen *screen = open_shell();
    CLEANUP_FD int client = pidfd_open(read_pid("pid"), 0);
    cr_assert_geq(client, 0);
    while (pidfd_send_signal(client, number, NULL, 0) == 0)
        (void)nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    screen_wait_prompt(screen, SCREEN_PROMPT);
    screen_enter(screen, "echo status $?" ANSWER_42);
    (void)snprintf(expected, sizeof(expected), "status %s42", status);
    screen_wait(screen, expected);
    assert_restored(screen);
}

Test(tty, a_client_that_is_told_to_end_restores_the_terminal)
{
    kill_client(SIGTERM, "143");
}

Test(tty, a_client_that_crashes_restores_the_terminal)
{
    kill_client(SIGABRT, "134");
}
