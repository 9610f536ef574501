/* A terminal with somebody in front of it: a tmux server of the case's own with one window, in
 * which a local sh runs that finds our client in its PATH and the fixture's orchestrator in its
 * environment. Keys go in, the screen comes out. That sh leaves the terminal's settings as they
 * are, so that what a program does to them is there to be seen. A screen that does not come to show
 * what it should ends the case, and is printed. Criterion; one thread. */
#pragma once

#include "tests/harness/fixture.h"

/* What the local shell says when it waits. */
#define SCREEN_PROMPT "local$ "

struct screen;

struct screen *screen_open(unsigned rows, unsigned columns);
void screen_free(struct screen *screen);

void screen_type(struct screen *screen, const char *text);
/* By tmux's name: "C-z", "Escape", "Enter". */
void screen_press(struct screen *screen, const char *key);
/* Text and Enter. */
void screen_enter(struct screen *screen, const char *line);
void screen_resize(struct screen *screen, unsigned rows, unsigned columns);

/* What it shows now, lines that were wrapped as one; for free(). */
char *screen_text(struct screen *screen);
/* Until it shows the text. */
void screen_wait(struct screen *screen, const char *text);
/* Until the last thing on it is that prompt, with nothing typed behind it. */
void screen_wait_prompt(struct screen *screen, const char *prompt);
/* Until exactly so many of its lines begin with the text. */
void screen_wait_lines(struct screen *screen, const char *beginning, unsigned count);
/* Until it does not show what it showed. */
void screen_wait_change(struct screen *screen, const char *before);
/* Enters the line again and again, each time behind the prompt, until it shows the text. */
void screen_ask(struct screen *screen, const char *line, const char *prompt, const char *text);

static inline void screen_cleanup(struct screen **screen)
{
    screen_free(*screen);
}
#define CLEANUP_SCREEN CLEANUP(screen_cleanup)
