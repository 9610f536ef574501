/* The terminal's settings, and their way back. Called by cli/foreground.c. The state is global
 * because atexit(3) and handlers of fatal signals have nothing else to hold on to. See termios(3)
 * and signal-safety(7). */
#include "cli/raw.h"

#include "common/macros.h"

#include <signal.h>
#include <termios.h>
#include <unistd.h>

static struct termios saved;
static volatile sig_atomic_t active;

/* What ends a process at once, whether by a bug or from outside. Those that verbs handle in order
 * are blocked, and do not come here. */
static const int fatal[] = { SIGSEGV, SIGBUS,  SIGFPE,  SIGILL, SIGABRT,
                             SIGSYS,  SIGTRAP, SIGXCPU, SIGALRM };

bool raw_possible(void)
{
    return isatty(STDIN_FILENO) && isatty(STDOUT_FILENO);
}

void raw_leave(void)
{
    if (!active)
        return;
    active = 0;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &saved);
}

static void on_fatal(int number)
{
    raw_leave();
    /* The action was reset by SA_RESETHAND: this time it ends us, with the right status. */
    (void)raise(number);
}

/* A sanitizer or a debugger that has its own handler keeps it. */
static void watch_fatal(void)
{
    const struct sigaction ours = { .sa_handler = on_fatal, .sa_flags = (int)SA_RESETHAND };
    struct sigaction now;
    for (size_t i = 0; i < ELEMENTS(fatal); i++)
        if (sigaction(fatal[i], NULL, &now) == 0 && now.sa_handler == SIG_DFL)
            (void)sigaction(fatal[i], &ours, NULL);
}

void raw_enter(void)
{
    static bool prepared;
    struct termios raw;
    if (active || tcgetpgrp(STDIN_FILENO) != getpgrp() || tcgetattr(STDIN_FILENO, &saved) < 0)
        return;
    if (!prepared) {
        (void)atexit(raw_leave);
        watch_fatal();
        prepared = true;
    }
    raw = saved;
    cfmakeraw(&raw);
    active = 1;
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &raw);
}

bool raw_active(void)
{
    return active;
}
