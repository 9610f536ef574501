/* Contexts on disk. cli/cmd_login.c makes them, cli/connect.c and cli/renew.c use them,
 * cli/cmd_context.c shows them. Names are checked before they become a path. */
#include "cli/context.h"

#include "common/config.h"
#include "common/file.h"
#include "common/ids.h"
#include "common/rpc_diagnose.h"

#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct config_key keys[] = {
    { "endpoint", NULL, CONFIG_STRING, offsetof(struct context, endpoint), NULL, 0, 0,
      "The orchestrator, HOST:PORT" },
    { "enroll_endpoint", NULL, CONFIG_STRING, offsetof(struct context, enroll_endpoint), NULL, 0, 0,
      "Its HTTPS front, HOST:PORT" },
    { 0 },
};

void context_done(struct context *context)
{
    free(context->name);
    free(context->dir);
    free(context->identity_dir);
    config_free(keys, context);
    *context = (struct context){ 0 };
}

static int format(char **ret, struct err *err, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

static int format(char **ret, struct err *err, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0)
        return err_nomem(err);
    *ret = text;
    return 0;
}

/* $XDG_CONFIG_HOME/sandstorm; a relative path there is to be ignored, says the specification. */
static int root_dir(char **ret, struct err *err)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    if (config && *config == '/')
        return format(ret, err, "%s/sandstorm", config);
    if (home && *home == '/')
        return format(ret, err, "%s/.config/sandstorm", home);
    return err_set(err, ERR_PRECONDITION,
                   "neither HOME nor XDG_CONFIG_HOME names a directory; set one of them, or use "
                   "--endpoint and --identity");
}

int context_name_check(const char *name, struct err *err)
{
    /* The same letters as a client's name: no slash, no leading dot. */
    return client_name_check(name, err) < 0 ? err_wrap(err, "the name of a context") : 0;
}

/* Fills what follows from the name. */
static int place(const char *name, struct context *context, struct err *err)
{
    CLEANUP_FREE char *root = NULL;
    if (context_name_check(name, err) < 0 || root_dir(&root, err) < 0 ||
        format(&context->name, err, "%s", name) < 0 ||
        format(&context->dir, err, "%s/contexts/%s", root, name) < 0)
        return -1;
    return format(&context->identity_dir, err, "%s/identity", context->dir);
}

/* Parsed, and of letters that need no thought in YAML between double quotes. */
static int check_endpoint(const char *text, struct endpoint *ret, struct err *err)
{
    if (endpoint_parse(text, ret, err) < 0)
        return -1;
    for (const char *p = text; *p; p++)
        if (!isalnum((unsigned char)*p) && !strchr(".-_:[]%", *p))
            return err_set(err, ERR_INVALID,
                           "\"%.200s\" is not an endpoint; write HOST:PORT, of letters, digits, "
                           "dots and dashes",
                           text);
    return 0;
}

int context_enroll_endpoint(const char *endpoint, char **ret, struct err *err)
{
    struct endpoint parts;
    if (check_endpoint(endpoint, &parts, err) < 0)
        return -1;
    unsigned long port = strtoul(parts.port, NULL, 10) + 1;
    if (port > 65535)
        return err_set(err, ERR_INVALID, "%s has no next port; give --enroll-endpoint", endpoint);
    bool v6 = strchr(parts.host, ':');
    return format(ret, err, "%s%s%s:%lu", v6 ? "[" : "", parts.host, v6 ? "]" : "", port);
}

/* A host as a name: "::1" becomes "1", a long one is cut. */
static void name_of_host(const char *host, char out[CLIENT_NAME_MAX + 1])
{
    size_t length = 0;
    for (; *host && length < CLIENT_NAME_MAX; host++)
        if (isalnum((unsigned char)*host))
            out[length++] = *host;
        else if (length > 0)
            out[length++] = *host == '.' ? '.' : '-';
    while (length > 0 && !isalnum((unsigned char)out[length - 1]))
        length--;
    (void)snprintf(out + length, CLIENT_NAME_MAX + 1 - length, "%s", length > 0 ? "" : "default");
}

static int fill(const char *name, const char *endpoint, const char *enroll_endpoint,
                struct context *context, struct err *err)
{
    struct endpoint parts;
    char host_name[CLIENT_NAME_MAX + 1];
    if (check_endpoint(endpoint, &parts, err) < 0)
        return -1;
    name_of_host(parts.host, host_name);
    if (place(name ? name : host_name, context, err) < 0 ||
        format(&context->endpoint, err, "%s", endpoint) < 0)
        return -1;
    if (!enroll_endpoint)
        return context_enroll_endpoint(endpoint, &context->enroll_endpoint, err);
    if (check_endpoint(enroll_endpoint, &parts, err) < 0)
        return err_wrap(err, "--enroll-endpoint");
    return format(&context->enroll_endpoint, err, "%s", enroll_endpoint);
}

int context_make(const char *name, const char *endpoint, const char *enroll_endpoint,
                 struct context *ret, struct err *err)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    if (fill(name, endpoint, enroll_endpoint, &context, err) < 0)
        return -1;
    *ret = context;
    context = (struct context){ 0 };
    return 0;
}

int context_create(const struct context *context, struct err *err)
{
    return file_make_dirs(context->dir, 0700, err);
}

static int write_current(const char *name, struct err *err)
{
    CLEANUP_FREE char *root = NULL, *path = NULL, *line = NULL;
    if (root_dir(&root, err) < 0 || format(&path, err, "%s/current", root) < 0 ||
        format(&line, err, "%s\n", name) < 0)
        return -1;
    return file_write_atomic(path, line, strlen(line), 0600, err);
}

int context_save(const struct context *context, struct err *err)
{
    CLEANUP_FREE char *path = NULL, *text = NULL;
    if (context_create(context, err) < 0 ||
        format(&path, err, "%s/context.yaml", context->dir) < 0 ||
        format(&text, err, "endpoint: \"%s\"\nenroll_endpoint: \"%s\"\n", context->endpoint,
               context->enroll_endpoint) < 0 ||
        file_write_atomic(path, text, strlen(text), 0600, err) < 0)
        return -1;
    return write_current(context->name, err);
}

static int read_context(const char *name, struct context *context, struct err *err)
{
    CLEANUP_FREE char *path = NULL;
    struct endpoint parts;
    if (place(name, context, err) < 0 || format(&path, err, "%s/context.yaml", context->dir) < 0)
        return -1;
    if (config_load(keys, path, true, context, err) < 0)
        return err->code != ERR_NOT_FOUND
                   ? -1
                   : err_set(
                         err, ERR_NOT_FOUND,
                         "there is no context \"%s\"; 'sandstorm context list' shows those that "
                         "are there, 'sandstorm login' makes one",
                         name);
    if (!context->endpoint || !context->enroll_endpoint)
        return err_set(err, ERR_INVALID,
                       "%s lacks endpoint or enroll_endpoint; run 'sandstorm login' again", path);
    return check_endpoint(context->endpoint, &parts, err) < 0 ||
                   check_endpoint(context->enroll_endpoint, &parts, err) < 0
               ? err_wrap(err, "%s", path)
               : 0;
}

int context_load(const char *name, struct context *ret, struct err *err)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    if (read_context(name, &context, err) < 0)
        return -1;
    *ret = context;
    context = (struct context){ 0 };
    return 0;
}

int context_current(char **ret, struct err *err)
{
    CLEANUP_FREE char *root = NULL, *path = NULL, *name = NULL;
    size_t size;
    struct err why = { 0 };
    /* Without a home there is no context; who needs one will be told. */
    if (root_dir(&root, &why) < 0) {
        *ret = NULL;
        return 0;
    }
    if (format(&path, err, "%s/current", root) < 0)
        return -1;
    if (file_read(path, CLIENT_NAME_MAX + 1, &name, &size, &why) < 0) {
        if (why.code != ERR_NOT_FOUND) {
            *err = why;
            return -1;
        }
        *ret = NULL;
        return 0;
    }
    name[strcspn(name, "\n")] = '\0';
    if (context_name_check(name, err) < 0)
        return err_wrap(err, "%s", path);
    *ret = TAKE_PTR(name);
    return 0;
}

int context_use(const char *name, struct err *err)
{
    CLEANUP_CONTEXT struct context context = { 0 };
    return context_load(name, &context, err) < 0 ? -1 : write_current(name, err);
}

static int is_context(const struct dirent *entry)
{
    struct err ignored;
    return context_name_check(entry->d_name, &ignored) == 0;
}

static int by_bytes(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

int context_list(void (*each)(void *userdata, const char *name, bool current), void *userdata,
                 struct err *err)
{
    CLEANUP_FREE char *root = NULL, *path = NULL, *current = NULL;
    if (root_dir(&root, err) < 0 || format(&path, err, "%s/contexts", root) < 0 ||
        context_current(&current, err) < 0)
        return -1;
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, is_context, by_bytes);
    if (count < 0 && errno != ENOENT)
        return err_errno(err, errno, "cannot list %s", path);
    for (int i = 0; i < count; i++) {
        CLEANUP_CONTEXT struct context context = { 0 };
        /* A login that has not ended has no context.yaml yet. */
        struct err ignored;
        if (context_load(entries[i]->d_name, &context, &ignored) == 0)
            each(userdata, context.name, current && strcmp(current, context.name) == 0);
        free(entries[i]);
    }
    free(entries);
    return 0;
}
