/* Terminals that are left and come back to, as a person has them, in windows of tmux. */
#include "tests/harness/screen.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define ROWS    24u
#define COLUMNS 80u
#define PROMPT  "box> "
#define ID      "0189f7a2-7f6c-4c1e-9d55-8a1c2f3e4d5b"

/* What a test waits for is computed by the shell, so that it is not what was typed. */
#define ANSWER_42 "$((40+2))"

TestSuite(attach, .init = fixture_start, .fini = fixture_stop);

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

/* The settings of the local terminal are in the file "before". */
static struct screen *open_shell(void)
{
    char home[CLUSTER_PATH_MAX], line[4 * CLUSTER_PATH_MAX];
    make_home(home);
    struct screen *screen = screen_open(ROWS, COLUMNS);
    (void)snprintf(line, sizeof(line), "cd %s; stty -a > before", home);
    screen_enter(screen, line);
    (void)snprintf(line, sizeof(line), "clear; sandstorm shell --id %s -E HOME=%s -C %s %s", ID,
                   home, home, BOX);
    screen_enter(screen, line);
    screen_wait_prompt(screen, PROMPT);
    return screen;
}

static void leave(struct screen *screen)
{
    screen_press(screen, "Enter");
    screen_type(screen, "~.");
    screen_wait(screen, "sandstorm attach " ID);
    screen_wait_prompt(screen, SCREEN_PROMPT);
}

static void assert_restored(struct screen *screen)
{
    screen_enter(screen, "stty -a | cmp - before && echo restored " ANSWER_42);
    screen_wait(screen, "restored 42");
}

Test(attach, a_shell_is_left_and_come_back_to)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "word=kept");
    leave(screen);
    screen_enter(screen, "echo status $?" ANSWER_42);
    screen_wait(screen, "status 042");
    assert_restored(screen);
    screen_enter(screen, "clear; sandstorm attach 0189");
    screen_wait_prompt(screen, PROMPT);
    screen_enter(screen, "echo $word " ANSWER_42);
    screen_wait(screen, "kept 42");
    /* For a moment it is a row smaller, so that what runs in it draws itself again. */
    screen_ask(screen, "stty size", PROMPT, "\n24 80\n");
    screen_enter(screen, "exit 6");
    screen_wait_prompt(screen, SCREEN_PROMPT);
    screen_enter(screen, "echo status $?" ANSWER_42);
    screen_wait(screen, "status 642");
    assert_restored(screen);
}

Test(attach, an_editor_is_drawn_again)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "clear; vi -u NONE -N -n edited");
    screen_wait_lines(screen, "~", ROWS - 2);
    screen_type(screen, "ihello from the editor");
    screen_wait(screen, "hello from the editor");
    screen_press(screen, "Escape");
    /* The editor never sees these: at the beginning of a line they are ours. */
    leave(screen);
    assert_restored(screen);
    screen_enter(screen, "clear");
    screen_resize(screen, 18, 70);
    screen_enter(screen, "sandstorm attach " ID);
    screen_wait(screen, "hello from the editor");
    screen_wait_lines(screen, "~", 18 - 3);
    screen_enter(screen, ":q!");
    screen_wait_prompt(screen, PROMPT);
}

Test(attach, the_keys_are_explained_and_a_doubled_one_is_one)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_press(screen, "Enter");
    screen_type(screen, "~?");
    screen_wait(screen, "the command goes on");
    screen_press(screen, "Enter");
    screen_type(screen, "~~");
    screen_press(screen, "C-u");
    screen_enter(screen, "echo a~.b " ANSWER_42);
    screen_wait(screen, "a~.b 42");
}

Test(attach, a_client_is_suspended_and_continued_with_the_terminal_in_order)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_press(screen, "Enter");
    screen_type(screen, "~");
    screen_press(screen, "C-z");
    screen_wait_prompt(screen, SCREEN_PROMPT);
    assert_restored(screen);
    screen_enter(screen, "clear; fg");
    screen_ask(screen, "echo back " ANSWER_42, "", "back 42");
}

Test(attach, a_watcher_sees_what_is_typed_elsewhere)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    CLEANUP_CLIENT struct fixture_client watcher =
        CLI_START(PIPE_OUT, "attach", "--watch", "--last", "1", ID);
    /* It is attached when it sees something; until then it is typed again. */
    screen_enter(screen,
                 "for i in 1 2 3 4 5 6 7 8 9; do echo see $i" ANSWER_42 "; sleep 0.2; done");
    char line[256] = "";
    while (!strstr(line, "see 942"))
        fixture_read_line(watcher.out, line, sizeof(line));
    screen_enter(screen, "exit 4");
    cr_assert_eq(fixture_client_wait(&watcher), 4);
}

Test(attach, a_killed_orchestrator_does_not_cost_the_shell)
{
    CLEANUP_SCREEN struct screen *screen = open_shell();
    screen_enter(screen, "word=kept");
    screen_wait_prompt(screen, PROMPT);
    MUST(service_kill(fixture()->orchestrator, err));
    screen_wait(screen, "reconnecting, the command goes on");
    MUST(cluster_start_orchestrator(fixture(), err));
    screen_wait(screen, "connected to the orchestrator again");
    screen_press(screen, "Enter");
    screen_ask(screen, "echo $word " ANSWER_42, PROMPT, "kept 42");
    screen_enter(screen, "exit 5");
    screen_wait_prompt(screen, SCREEN_PROMPT);
    screen_enter(screen, "echo status $?" ANSWER_42);
    screen_wait(screen, "status 542");
    assert_restored(screen);
}
