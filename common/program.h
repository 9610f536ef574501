/* What every main() begins and ends with: options with --help, --version and --man, the log, and
 * the way from an error to an exit status. Main thread. */
#pragma once

#include "common/options.h"

/* As options_parse(); *ret_done says that the page, the version or the manual was printed and there
 * is nothing left to do. */
int program_parse(const struct option_page *page, int argc, char **argv, void *values,
                  bool *ret_done, int *ret_rest, struct err *err) must_use;
int program_log(const char *program, const char *level, const char *format,
                struct err *err) must_use;
/* The whole main() of a daemon that has no verbs: --config, the page's settings into `settings`,
 * then serve(). The page's options are program_options. */
extern const struct option program_options[];
int program_main(const struct option_page *page, int argc, char **argv, void *settings,
                 int (*serve)(const void *settings, struct err *err));

/* A program with verbs: one word for the verb and at most one for what it is about; options may
 * stand anywhere. `call` is the program's own. */
struct program_verb {
    const char *name;
    bool takes_argument;
    int (*run)(const void *call, const char *argument, struct err *err);
};
/* Either word is NULL when it is not there. */
int program_words(const struct option_page *page, int argc, char **argv, void *values,
                  const char **ret_verb, const char **ret_argument, bool *ret_done,
                  struct err *err) must_use;
/* The table ends with a NULL name; a near miss is named. */
int program_dispatch(const struct program_verb *verbs, const char *verb, const char *argument,
                     const void *call, struct err *err) must_use;

/* Says it on stderr as one sentence; the result is for exit(3). */
int program_fail(const char *program, const struct err *err);
