/* The frame around each main(). Called by agent/runner_main.c, agent/link_main.c,
 * orchestrator/main.c and cli/main.c. */
#include "common/program.h"

#include "common/config.h"
#include "common/log.h"
#include "common/version.h"

#include <stddef.h>
#include <string.h>

int program_parse(const struct option_page *page, int argc, char **argv, void *values,
                  bool *ret_done, int *ret_rest, struct err *err)
{
    *ret_done = true;
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        (void)printf("%s %s\n", page->program, SANDSTORM_VERSION);
        return 0;
    }
    /* For the build, which makes the manual pages with it. */
    if (argc == 2 && strcmp(argv[1], "--man") == 0) {
        options_man(page, stdout);
        return 0;
    }
    bool help;
    if (options_parse(page, argc, argv, values, &help, ret_rest, err) < 0)
        return -1;
    if (help)
        options_help(page, stdout);
    *ret_done = help;
    return 0;
}

int program_log(const char *program, const char *level, const char *format, struct err *err)
{
    enum log_level parsed_level;
    enum log_format parsed_format;
    if (log_level_parse(level, &parsed_level, err) < 0 ||
        log_format_parse(format, &parsed_format, err) < 0)
        return -1;
    log_setup(program, parsed_level, parsed_format);
    return 0;
}

struct arguments {
    const char *config;
};

const struct option program_options[] = {
    { "config", 'c', OPTION_STRING, "FILE", "Settings file, instead of the one below",
      offsetof(struct arguments, config), 0, 0 },
    { 0 },
};

int program_main(const struct option_page *page, int argc, char **argv, void *settings,
                 int (*serve)(const void *settings, struct err *err))
{
    struct arguments arguments = { 0 };
    struct err err = { 0 };
    bool done;
    int rest;
    int r = program_parse(page, argc, argv, &arguments, &done, &rest, &err);
    if (r == 0 && done)
        return 0;
    if (r == 0 && rest < argc)
        r = err_set(&err, ERR_INVALID, "\"%s\" is not expected here; see --help", argv[rest]);
    if (r == 0)
        r = config_load(page->settings, arguments.config ? arguments.config : page->settings_file,
                        arguments.config != NULL, settings, &err);
    if (r == 0)
        r = serve(settings, &err);
    config_free(page->settings, settings);
    return r < 0 ? program_fail(page->program, &err) : 0;
}

int program_words(const struct option_page *page, int argc, char **argv, void *values,
                  const char **ret_verb, const char **ret_argument, bool *ret_done, struct err *err)
{
    const char *words[2] = { NULL, NULL };
    unsigned count = 0;
    int at = 0;
    for (;;) {
        int rest;
        if (program_parse(page, argc - at, argv + at, values, ret_done, &rest, err) < 0)
            return -1;
        if (*ret_done)
            return 0;
        at += rest;
        if (at >= argc)
            break;
        if (count == ELEMENTS(words))
            return err_set(err, ERR_INVALID, "\"%s\" is not expected here; see --help", argv[at]);
        words[count++] = argv[at];
    }
    *ret_verb = words[0];
    *ret_argument = words[1];
    return 0;
}

#define VERBS_MAX 32u

int program_dispatch(const struct program_verb *verbs, const char *verb, const char *argument,
                     const void *call, struct err *err)
{
    const char *names[VERBS_MAX + 1] = { 0 };
    for (size_t i = 0; i < VERBS_MAX && verbs[i].name; i++) {
        names[i] = verbs[i].name;
        if (strcmp(verbs[i].name, verb) != 0)
            continue;
        if (argument && !verbs[i].takes_argument)
            return err_set(err, ERR_INVALID, "\"%s\" is not expected after %s", argument, verb);
        return verbs[i].run(call, argument, err);
    }
    const char *near = nearest_name(verb, names);
    return err_set(err, ERR_INVALID, "there is no verb \"%s\"%s%s%s See --help.", verb,
                   near ? "; did you mean \"" : ".", near ? near : "", near ? "\"?" : "");
}

int program_fail(const char *program, const struct err *err)
{
    (void)fprintf(stderr, "%s: %s\n", program, err->text);
    return err_exit_code(err->code);
}
