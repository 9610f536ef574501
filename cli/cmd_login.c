/* `sandstorm login`: a login key becomes a context with a certificate. The key pair is made here,
 * is on disk before it is used, and is used again by a retry: the orchestrator answers the same key
 * once more, so a crash at any point costs nothing. next: common/front_client.c, cli/context.c. */
#include "cli/context.h"

#include "cli/cli.h"
#include "cli/text.h"
#include "common/csr.h"
#include "common/file.h"
#include "common/front_client.h"
#include "common/identity_dir.h"
#include "common/rpc_creds.h"
#include "common/secret.h"

#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define KEY_VARIABLE "SANDSTORM_LOGIN_KEY"

struct arguments {
    const char *key, *key_file, *ca_fingerprint, *ca_file, *enroll_endpoint, *context;
};

static const struct option options[] = {
    { "key", 'k', OPTION_STRING, "KEY",
      "The login key; - reads it from stdin; else $" KEY_VARIABLE " is used",
      offsetof(struct arguments, key), 0, 0 },
    { "key-file", 'f', OPTION_STRING, "FILE", "The file that holds the login key",
      offsetof(struct arguments, key_file), 0, 0 },
    { "ca-fingerprint", 0, OPTION_STRING, "sha256:HEX",
      "What the orchestrator is known by, as it came with the login key",
      offsetof(struct arguments, ca_fingerprint), 0, 0 },
    { "ca-file", 0, OPTION_STRING, "FILE", "The orchestrator's CA itself, instead of a fingerprint",
      offsetof(struct arguments, ca_file), 0, 0 },
    { "enroll-endpoint", 0, OPTION_STRING, "HOST:PORT",
      "The orchestrator's HTTPS port, instead of the one after ENDPOINT's",
      offsetof(struct arguments, enroll_endpoint), 0, 0 },
    { "context", 0, OPTION_STRING, "NAME", "What to call this login, instead of the host's name",
      offsetof(struct arguments, context), 0, 0 },
    { 0 },
};

static const char *const examples[] = {
    "sandstorm login orchestrator.example.com:5000 --key-file alice.key --ca-fingerprint "
    "sha256:...",
    "Log in with what 'sandstorm client add' has printed",
    "pass sandstorm | sandstorm login localhost:5000 --key - --ca-file ca.pem --context dev",
    "The key from a password store, the CA from a file",
    NULL,
};

static const char *const environment[] = {
    KEY_VARIABLE,
    "The login key, where neither --key nor --key-file is given",
    NULL,
};

static const struct option_page page = {
    .program = "sandstorm login",
    .section = 1,
    .summary = "log in to an orchestrator with a login key",
    .usage = "[OPTION...] ENDPOINT",
    .options = options,
    .environment = environment,
    .examples = examples,
};

/* The login key. */

static int read_stdin(char text[SECRET_TEXT_MAX + 1], struct err *err)
{
    size_t used = fread(text, 1, SECRET_TEXT_MAX, stdin);
    text[used] = '\0';
    return ferror(stdin) ? err_set(err, ERR_SYSTEM, "cannot read the login key from stdin") : 0;
}

static int read_key_file(const char *path, char text[SECRET_TEXT_MAX + 1], struct err *err)
{
    CLEANUP_FREE char *data = NULL;
    size_t size;
    if (strcmp(path, "-") == 0)
        return read_stdin(text, err);
    if (file_read(path, SECRET_TEXT_MAX, &data, &size, err) < 0)
        return err_wrap(err, "--key-file");
    (void)memcpy(text, data, size + 1);
    explicit_bzero(data, size);
    return 0;
}

static int find_key(const struct arguments *arguments, char text[SECRET_TEXT_MAX + 1],
                    struct err *err)
{
    const char *given = arguments->key ? arguments->key : getenv(KEY_VARIABLE);
    if (arguments->key && arguments->key_file)
        return err_set(err, ERR_INVALID, "give --key or --key-file, not both");
    if (arguments->key_file)
        return read_key_file(arguments->key_file, text, err);
    if (!given || !*given)
        return err_set(
            err, ERR_INVALID,
            "give the login key with --key-file FILE or --key -; an admin makes one with "
            "'sandstorm client add'");
    if (strcmp(given, "-") == 0)
        return read_stdin(text, err);
    if (arguments->key)
        cli_complain("the login key can be seen by others in the list of processes; next time use "
                     "--key-file FILE, or --key - and stdin");
    (void)snprintf(text, SECRET_TEXT_MAX + 1, "%s", given);
    return 0;
}

/* What stands in the text, without the newline of a file, if it is a login key at all. */
static int take_key(const struct arguments *arguments, struct secret *ret, struct err *err)
{
    char text[SECRET_TEXT_MAX + 1];
    CLEANUP_SECRET struct secret token = { 0 };
    int r = find_key(arguments, text, err);
    if (r == 0) {
        text[strcspn(text, "\r\n")] = '\0';
        if (secret_parse(text, SECRET_JOIN, &token, NULL) == 0)
            r = err_set(
                err, ERR_INVALID,
                "this is a join token, which is for a VM ('sandstorm-agent enroll'); ask an "
                "admin for a login key ('sandstorm client add')");
        else if (secret_parse(text, SECRET_LOGIN, ret, NULL) < 0)
            r = err_set(err, ERR_INVALID,
                        "this is not a login key; it begins with sslogin_ and is one long line");
    }
    explicit_bzero(text, sizeof(text));
    return r;
}

/* The orchestrator's CA: from a file, or from whoever shows one with the right fingerprint. */
static int find_ca(const struct arguments *arguments, const struct context *context, char **ret,
                   struct err *err)
{
    char fingerprint[FRONT_FINGERPRINT_LEN + 1];
    size_t size;
    if (!arguments->ca_file == !arguments->ca_fingerprint)
        return err_set(err, ERR_INVALID,
                       "give --ca-fingerprint sha256:..., which came with the login key, or "
                       "--ca-file, so that the key goes to the right orchestrator");
    if (arguments->ca_file)
        return file_read(arguments->ca_file, PEM_MAX, ret, &size, err) < 0
                   ? err_wrap(err, "--ca-file")
                   : 0;
    if (front_fingerprint_parse(arguments->ca_fingerprint, fingerprint, err) < 0)
        return err_wrap(err, "--ca-fingerprint");
    return front_fetch_ca(context->enroll_endpoint, fingerprint, FRONT_TIMEOUT_MS, ret, err);
}

/* The key pair. */

struct pending {
    char *dir, *path;
};

static void pending_done(struct pending *pending)
{
    free(pending->dir);
    free(pending->path);
}

static int pending_key(const struct context *context, struct pending *pending, char **ret_key,
                       struct err *err)
{
    size_t size;
    struct err why = { 0 };
    if (asprintf(&pending->dir, "%s/identity.pending", context->dir) < 0) {
        pending->dir = NULL;
        return err_nomem(err);
    }
    if (asprintf(&pending->path, "%s/key.pem", pending->dir) < 0) {
        pending->path = NULL;
        return err_nomem(err);
    }
    if (file_read(pending->path, PEM_MAX, ret_key, &size, &why) == 0)
        return 0;
    if (why.code != ERR_NOT_FOUND) {
        *err = why;
        return -1;
    }
    if (mkdir(pending->dir, 0700) < 0 && errno != EEXIST)
        return err_errno(err, errno, "cannot make the directory %s", pending->dir);
    CLEANUP_KEY_PEM char *key = NULL;
    if (csr_key_new(&key, err) < 0 ||
        file_write_atomic(pending->path, key, strlen(key), 0600, err) < 0)
        return -1;
    *ret_key = TAKE_PTR(key);
    return 0;
}

/* It is in the identity now; a copy that stays behind would only be a second place to steal it
 * from. */
static void pending_remove(const struct pending *pending)
{
    (void)unlink(pending->path);
    (void)rmdir(pending->dir);
}

static int exchange(const struct context *context, const char *ca, const struct secret *secret,
                    struct front_certificate *ret, struct err *err)
{
    CLEANUP(pending_done) struct pending pending = { 0 };
    CLEANUP_KEY_PEM char *key = NULL;
    CLEANUP_FREE char *csr = NULL;
    if (pending_key(context, &pending, &key, err) < 0)
        return -1;
    if (csr_new(key, &csr, err) < 0)
        return err_wrap(err, "%s; remove it and try again", pending.path);
    if (front_login(context->enroll_endpoint, ca, secret->text, csr, FRONT_TIMEOUT_MS, ret, err) <
            0 ||
        csr_check_answer(key, ret->certificate, ret->ca, err) < 0)
        return -1;
    const struct identity_files files = { .ca = ret->ca, .cert = ret->certificate, .key = key };
    if (identity_dir_write(context->identity_dir, &files, err) < 0 ||
        context_save(context, err) < 0)
        return -1;
    pending_remove(&pending);
    return 0;
}

/* Two logins to one context would use one pending key, and renewal must not come between. */
static int lock(const struct context *context, int *ret, struct err *err)
{
    CLEANUP_FD int fd = open(context->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "cannot open %s", context->dir);
    if (flock(fd, LOCK_EX | LOCK_NB) < 0)
        return err_set(err, ERR_UNAVAILABLE,
                       "another sandstorm is just logging in or renewing in context \"%s\"; try "
                       "again",
                       context->name);
    *ret = TAKE_FD(fd);
    return 0;
}

static int login(const struct arguments *arguments, const struct context *context,
                 struct front_certificate *ret, struct err *err)
{
    CLEANUP_SECRET struct secret secret = { 0 };
    CLEANUP_FREE char *ca = NULL;
    CLEANUP_FD int held = -1;
    if (take_key(arguments, &secret, err) < 0 || find_ca(arguments, context, &ca, err) < 0 ||
        context_create(context, err) < 0 || lock(context, &held, err) < 0)
        return -1;
    return exchange(context, ca, &secret, ret, err);
}

/* Whose login key this is shows only when it is used, and it can be used once: a context that is
 * there is replaced only by who names it. */
static int check_free(const struct arguments *arguments, const struct context *context,
                      struct err *err)
{
    if (arguments->context || access(context->identity_dir, F_OK) < 0)
        return 0;
    return err_set(err, ERR_EXISTS,
                   "there is a login for %s already, the context \"%s\"; add --context NAME for "
                   "another one, or --context %s to replace it",
                   context->endpoint, context->name, context->name);
}

static int act(const void *values, char **words, struct sandstorm_error *error)
{
    const struct arguments *arguments = values;
    struct err err = { 0 };
    char until[TEXT_TIME_MAX];
    CLEANUP_CONTEXT struct context context = { 0 };
    CLEANUP_FRONT_CERTIFICATE struct front_certificate certificate = { 0 };
    if (context_make(arguments->context, words[0], arguments->enroll_endpoint, &context, &err) <
            0 ||
        check_free(arguments, &context, &err) < 0 ||
        login(arguments, &context, &certificate, &err) < 0)
        return cli_error(&err, error);
    text_time(certificate.not_after_ms, until);
    text_print(stdout,
               "Logged in to %s as %s. The context is %s now; its certificate is good until %s and "
               "renews itself when used.\n",
               context.endpoint, certificate.name, context.name, until);
    const char *stronger = getenv("SANDSTORM_IDENTITY");
    if (stronger && *stronger)
        cli_complain(
            "SANDSTORM_IDENTITY is set and counts more than any context; unset it to be who "
            "you have logged in as");
    return 0;
}

const struct cli_verb cli_login = {
    .name = "login",
    .page = &page,
    .act = act,
    .size = sizeof(struct arguments),
    .words_min = 1,
    .words_max = 1,
};
