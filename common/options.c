/* The command line parser, durations, and the guess at what a misspelt name meant. main() and the
 * verbs of the CLI hand in argv with a table; values go straight into the caller's struct. config.c
 * borrows the number rules and the guess, so that a file and a command line read alike.
 * next: common/options_print.c, which shows the same table to people. */
#include "common/options-internal.h"

#include <assert.h>
#include <string.h>

#define OPTIONS_MAX      128 /* rows that take part in the guess */
#define OPTIONS_NAME_MAX 64  /* bytes of a name, with its NUL; anything longer is not ours */
#define NEAREST_EDITS    2

const struct option options_help_row = {
    .name = "help",
    .letter = 'h',
    .kind = OPTION_FLAG,
    .help = "Show this help and exit",
};

/* The words not yet looked at. */
struct cursor {
    int argc;
    char **argv;
    int next;
};

static const struct {
    const char *unit;
    uint64_t us;
} units[] = {
    { "d", UINT64_C(86400000000) }, { "h", UINT64_C(3600000000) }, { "m", UINT64_C(60000000) },
    { "s", UINT64_C(1000000) },     { "ms", UINT64_C(1000) },
};

/* Plain digits: strtoull would also take spaces, signs and, from a locale, separators. */
static int digits(const char *text, uint64_t *ret, const char **ret_end)
{
    uint64_t value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (unsigned)(*p - '0'), &value))
            return -1;
    if (p == text)
        return -1;
    *ret = value;
    *ret_end = p;
    return 0;
}

static int uint_parse(const char *text, uint64_t *ret, struct err *err)
{
    uint64_t value = 0;
    const char *end = NULL;
    if (digits(text, &value, &end) < 0 || *end != '\0')
        return err_set(err, ERR_INVALID, "\"%.64s\" is not a number; write it in decimal digits",
                       text);
    *ret = value;
    return 0;
}

int duration_parse(const char *text, uint64_t *ret_us, struct err *err)
{
    uint64_t value = 0;
    const char *end = NULL;
    if (digits(text, &value, &end) == 0)
        for (size_t i = 0; i < ELEMENTS(units); i++)
            if (strcmp(end, units[i].unit) == 0 &&
                !__builtin_mul_overflow(value, units[i].us, &value)) {
                *ret_us = value;
                return 0;
            }
    return err_set(err, ERR_INVALID,
                   "\"%.64s\" is not a duration; write it like 500ms, 30s, 15m, 12h or 7d", text);
}

/* A bound the way a person would have typed it. The finest unit is the millisecond, so a bound in
 * between moves to the nearest value that is still allowed. */
static void bound_format(char *out, size_t size, bool duration, uint64_t bound, bool lower)
{
    if (!duration) {
        (void)snprintf(out, size, "%llu", (unsigned long long)bound);
        return;
    }
    uint64_t ms = bound / 1000 + (lower && bound % 1000 != 0);
    for (size_t i = 0; i < ELEMENTS(units); i++)
        if (ms % (units[i].us / 1000) == 0) {
            (void)snprintf(out, size, "%llu%s", (unsigned long long)(ms / (units[i].us / 1000)),
                           units[i].unit);
            return;
        }
}

int options_number(const char *text, bool duration, uint64_t min, uint64_t max, uint64_t *ret,
                   struct err *err)
{
    uint64_t value = 0;
    if ((duration ? duration_parse(text, &value, err) : uint_parse(text, &value, err)) < 0)
        return -1;
    char bound[32];
    if (value < min) {
        bound_format(bound, sizeof(bound), duration, min, true);
        return err_set(err, ERR_INVALID, "%.64s is too small; give at least %s", text, bound);
    }
    if (max != 0 && value > max) {
        bound_format(bound, sizeof(bound), duration, max, false);
        return err_set(err, ERR_INVALID, "%.64s is too large; give at most %s", text, bound);
    }
    *ret = value;
    return 0;
}

/* Levenshtein's distance with one row of memory; `b` is shorter than OPTIONS_NAME_MAX. */
static unsigned edits(const char *a, const char *b)
{
    unsigned row[OPTIONS_NAME_MAX];
    size_t length = strlen(b);
    for (size_t j = 0; j <= length; j++)
        row[j] = (unsigned)j;
    for (size_t i = 0; a[i] != '\0'; i++) {
        unsigned diagonal = row[0];
        row[0] = (unsigned)i + 1;
        for (size_t j = 1; j <= length; j++) {
            unsigned replaced = diagonal + (a[i] != b[j - 1]);
            diagonal = row[j];
            row[j] = MIN(replaced, MIN(row[j], row[j - 1]) + 1);
        }
    }
    return row[length];
}

const char *nearest_name(const char *word, const char *const *names)
{
    size_t word_length = strlen(word);
    if (word_length == 0 || word_length >= OPTIONS_NAME_MAX)
        return NULL;
    const char *near = NULL, *prefixed = NULL;
    unsigned best = NEAREST_EDITS + 1;
    for (; *names; names++) {
        size_t length = strlen(*names);
        if (length >= OPTIONS_NAME_MAX)
            continue;
        /* When every letter would change, the two have nothing in common. */
        unsigned distance = edits(word, *names);
        if (distance < best && distance < MAX(length, word_length)) {
            near = *names;
            best = distance;
        }
        if (strncmp(*names, word, word_length) == 0 && (!prefixed || length < strlen(prefixed)))
            prefixed = *names;
    }
    return near ? near : prefixed;
}

static const char *nearest_option(const struct option_page *page, const char *word)
{
    const char *names[OPTIONS_MAX + 2];
    size_t count = 0;
    for (const struct option *row = page->options; row && row->name && count < OPTIONS_MAX; row++)
        names[count++] = row->name;
    names[count++] = options_help_row.name;
    names[count] = NULL;
    return nearest_name(word, names);
}

char options_letter(const struct option_page *page, const struct option *option)
{
    if (option == &options_help_row)
        for (const struct option *row = page->options; row && row->name; row++)
            if (row->letter == option->letter)
                return 0;
    return option->letter;
}

static const struct option *find_long(const struct option_page *page, const char *name,
                                      size_t length)
{
    for (const struct option *row = page->options; row && row->name; row++)
        if (strlen(row->name) == length && memcmp(row->name, name, length) == 0)
            return row;
    bool help =
        strlen(options_help_row.name) == length && memcmp(options_help_row.name, name, length) == 0;
    return help ? &options_help_row : NULL;
}

static const struct option *find_letter(const struct option_page *page, char letter)
{
    for (const struct option *row = page->options; row && row->name; row++)
        if (row->letter == letter)
            return row;
    return letter == options_help_row.letter ? &options_help_row : NULL;
}

/* `shown` is the word as it was typed, `name` what to compare with the long names. */
static int unknown_option(const struct option_page *page, const char *shown, const char *name,
                          struct err *err)
{
    const char *near = nearest_option(page, name);
    if (near)
        return err_set(err, ERR_INVALID, "unknown option \"%.64s\"; did you mean \"--%s\"?", shown,
                       near);
    return err_set(err, ERR_INVALID, "unknown option \"%.64s\"; \"%s --help\" lists them all",
                   shown, page->program);
}

static int store(const struct option *option, const char *value, void *values, struct err *err)
{
    void *slot = (char *)values + option->offset;
    bool duration = option->kind == OPTION_DURATION;
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)slot = true;
        return 0;
    case OPTION_STRING:
        *(const char **)slot = value;
        return 0;
    case OPTION_UINT:
    case OPTION_DURATION:
        if (options_number(value, duration, option->min, option->max, slot, err) < 0)
            return err_wrap(err, "--%s", option->name);
        return 0;
    case OPTION_LIST: {
        struct option_list *list = slot;
        if (list->count >= OPTION_LIST_MAX)
            return err_set(err, ERR_INVALID, "--%s may be given at most %d times", option->name,
                           OPTION_LIST_MAX);
        list->items[list->count++] = value;
        return 0;
    }
    }
    return err_set(err, ERR_INTERNAL, "--%s has no such kind; report this bug", option->name);
}

/* An option without its value yet: takes `attached` if there is one, else the next word. */
static int apply(const struct option *option, const char *attached, struct cursor *cursor,
                 void *values, bool *help, struct err *err)
{
    if (option->kind == OPTION_FLAG) {
        if (attached)
            return err_set(err, ERR_INVALID, "--%s takes no value; leave out \"=%.64s\"",
                           option->name, attached);
        if (option != &options_help_row)
            return store(option, NULL, values, err);
        *help = true;
        return 0;
    }
    if (!attached && cursor->next >= cursor->argc)
        return err_set(err, ERR_INVALID, "--%s needs a value; write --%s=%s", option->name,
                       option->name, option->argument ? option->argument : "VALUE");
    return store(option, attached ? attached : cursor->argv[cursor->next++], values, err);
}

static int parse_long(const struct option_page *page, const char *word, struct cursor *cursor,
                      void *values, bool *help, struct err *err)
{
    const char *name = word + 2;
    const char *equals = strchr(name, '=');
    size_t length = equals ? (size_t)(equals - name) : strlen(name);
    const struct option *option = find_long(page, name, length);
    if (option)
        return apply(option, equals ? equals + 1 : NULL, cursor, values, help, err);
    /* Without its value, which may be long or secret; a name cut here is no near miss anyway. */
    char shown[OPTIONS_NAME_MAX + 2];
    (void)snprintf(shown, sizeof(shown), "--%.*s", (int)MIN(length, sizeof(shown)), name);
    return unknown_option(page, shown, shown + 2, err);
}

/* -v, -vq, -n5, -n 5, -vn5: flags until a letter that takes a value, which takes the rest. */
static int parse_letters(const struct option_page *page, const char *word, struct cursor *cursor,
                         void *values, bool *help, struct err *err)
{
    for (const char *p = word + 1; *p != '\0'; p++) {
        const struct option *option = find_letter(page, *p);
        if (!option) {
            /* More than one letter may be a long name with a dash too few. */
            if (word[2] != '\0' && nearest_option(page, word + 1))
                return unknown_option(page, word, word + 1, err);
            const char shown[] = { '-', *p, '\0' };
            return unknown_option(page, shown, "", err);
        }
        bool flag = option->kind == OPTION_FLAG;
        const char *attached = !flag && p[1] != '\0' ? p + 1 : NULL;
        if (apply(option, attached, cursor, values, help, err) < 0)
            return -1;
        if (!flag)
            return 0;
    }
    return 0;
}

int options_parse(const struct option_page *page, int argc, char **argv, void *values,
                  bool *ret_help, int *ret_rest, struct err *err)
{
    assert(page->program);
    struct cursor cursor = { .argc = argc, .argv = argv, .next = MIN(argc, 1) };
    bool help = false;
    /* Whoever asks for help gets it, whatever follows. */
    while (!help && cursor.next < argc) {
        const char *word = argv[cursor.next];
        if (word[0] != '-' || word[1] == '\0')
            break;
        cursor.next++;
        if (strcmp(word, "--") == 0)
            break;
        int r = word[1] == '-' ? parse_long(page, word, &cursor, values, &help, err)
                               : parse_letters(page, word, &cursor, values, &help, err);
        if (r < 0)
            return -1;
    }
    *ret_help = help;
    *ret_rest = cursor.next;
    return 0;
}
